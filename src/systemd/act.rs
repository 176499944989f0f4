//! stand-in until branch detect
#![allow(missing_docs, unused)]
use crate::vocabulary::{Command, UnitName};
use std::fmt;
use std::time::Duration;
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ActError(String);
#[derive(Debug)]
pub enum CommandExit {
    Exited(i32),
    Killed(i32),
    TimedOut,
    NotStarted(String),
}
impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
pub struct CommandEnd {
    pub exit: CommandExit,
    pub took: Duration,
}
impl super::Systemd {
    pub async fn signal(&self, unit: &UnitName, signal: i32, whole: bool) -> Result<(), ActError> {
        Err(ActError("x".into()))
    }
    pub async fn reload(&self, unit: &UnitName, timeout: Duration) -> Result<(), ActError> {
        Err(ActError("x".into()))
    }
    pub async fn restart_other(&self, unit: &UnitName, timeout: Duration) -> Result<(), ActError> {
        Err(ActError("x".into()))
    }
    pub async fn run(&self, command: &Command, purpose: &str) -> CommandEnd {
        CommandEnd { exit: CommandExit::TimedOut, took: Duration::ZERO }
    }
}
