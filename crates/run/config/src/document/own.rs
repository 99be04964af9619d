//! What a program says that no text of a document can: rows that it brings in place of those that a document names. Not here: the tables that
//! they are not in.

use kvdrive_engines::packing::{OwnPacking, PackingRow};
use kvdrive_link::transfer::{MethodRow, OwnTransfer};
use kvdrive_workload::{OwnWorkload, Row};
use serde_json::Value;

use super::Document;
use crate::sections::Config;

/// The rows of the calling program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnRows {
    pub(super) workload: Option<OwnWorkload>,
    packing: Option<OwnPacking>,
    transfer: Option<OwnTransfer>,
}

impl OwnRows {
    /// Puts their names into the values of a document, as reports show them.
    pub(super) fn name(&self, values: &mut Value) {
        if let Some(own) = self.workload {
            values["workload"]["name"] = own.row().name.into();
        }
        if let Some(own) = self.packing {
            values["packing"]["policy"] = own.row().name.into();
        }
        if let Some(own) = self.transfer {
            values["host"]["transfer"] = own.row().name.into();
        }
    }

    /// The configuration of these values with these rows; `named` has the name that the document has for a key, since
    /// one that is in no table would be refused.
    pub(super) fn typed<'a, E>(
        &self,
        values: &mut Value,
        named: impl Fn(&str) -> &'a str,
        of_values: impl Fn(&Value) -> Result<Config, E>,
    ) -> Result<Config, E> {
        if self.packing.is_some() {
            values["packing"]["policy"] = named("packing.policy").into();
        }
        if self.transfer.is_some() {
            values["host"]["transfer"] = named("host.transfer").into();
        }
        let mut config = of_values(values)?;
        config.workload.own = self.workload;
        if let Some(own) = self.packing {
            config.engines.lsm.packing.policy = own.row().name.to_owned();
            config.engines.lsm.packing.own = Some(own);
        }
        if let Some(own) = self.transfer {
            config.host.transfer.method = own.row().name.to_owned();
            config.host.transfer.own = Some(own);
        }
        Ok(config)
    }
}

impl Document {
    /// Describes a drive for hosts that bring the work: it may have blocks without a store that uses them.
    pub fn serve_hosts(&mut self) {
        self.serves_hosts = true;
    }

    /// Uses a workload that is in no table, instead of `workload.name`.
    pub fn bring_workload(&mut self, row: &'static Row) {
        self.own.workload = Some(row.into());
    }

    /// Uses a packing policy that is in no table, instead of `packing.policy`.
    pub fn bring_packing(&mut self, row: &'static PackingRow) {
        self.own.packing = Some(row.into());
    }

    /// Chooses transfer methods by a row that is in no table, instead of `host.transfer`.
    pub fn bring_transfer(&mut self, row: &'static MethodRow) {
        self.own.transfer = Some(row.into());
    }
}
