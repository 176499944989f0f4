//! The door: the peer protocol `keyholder/1`, both of its sides.

pub mod desk;
pub mod wire;
