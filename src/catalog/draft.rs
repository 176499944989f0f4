//! A catalog on its way: read, checked for itself, and not yet relied on.

use super::model::Catalog;
use super::raw::{self, RawCatalog};
use super::{lint, validate};
use crate::config::file;
use crate::config::problem::Problems;
use crate::config::report::Report;
use crate::vocabulary::CatalogHash;

/// A good catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The catalog.
    pub catalog: Catalog,
    /// What somebody should know about it.
    pub warnings: Problems,
}

/// A catalog that has been checked for itself, while others may still have something to say about it.
#[derive(Debug)]
pub(super) struct Draft<'b> {
    pub name: String,
    pub report: Report<'b>,
    pub raw: Option<RawCatalog>,
    hash: CatalogHash,
}

impl<'b> Draft<'b> {
    pub(super) fn read(name: &str, bytes: &'b [u8]) -> Result<Self, Problems> {
        let (mut report, tree) = file::read(name, bytes)?;
        let raw = tree.and_then(|tree| raw::read(&mut report, &tree));
        if let Some(raw) = &raw {
            validate::validate(&mut report, raw);
            lint::file_name(&mut report, name, raw);
        }
        Ok(Self { name: name.to_owned(), report, raw, hash: CatalogHash::of(bytes) })
    }

    pub(super) fn finish(self) -> Result<Loaded, Problems> {
        let (report, hash) = (self.report, self.hash);
        let good = self.raw.filter(|_| report.errors() == 0);
        let (catalog, warnings) = report.finish_with(good.and_then(|raw| validate::build(&raw, hash)))?;
        Ok(Loaded { catalog, warnings })
    }
}
