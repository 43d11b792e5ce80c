//! Mapped memory of a device, and which other devices reach it.
//!
//! A device reaches what another one has mapped only once it was let. Then copies between the two go over the link
//! between them; until then the driver sends them through the host, at a tenth of the speed. Deliberately absent: letting
//! before somebody asks. Each reader makes each mapping take longer.

use super::context::Device;
use super::driver::{DevicePtr, Failure, done};
use cudarc::driver::sys;
use std::collections::BTreeMap;

/// What of a device's memory is mapped.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// Address to size in bytes.
    pieces: BTreeMap<DevicePtr, usize>,
    /// Other devices that asked, and whether there is a link to them.
    readers: Vec<(u16, bool)>,
}

impl Device {
    /// Lets this device, and those that were let before, reach a range that was just mapped.
    pub(super) fn let_all(&self, address: DevicePtr, size_bytes: usize) -> Result<(), Failure> {
        let mut mapped = self.mapped.lock();
        self.let_one(self.index(), address, size_bytes)?;
        for &(reader, _) in mapped.readers.iter().filter(|(_, linked)| *linked) {
            // Copies find another way.
            let _ = self.let_one(reader, address, size_bytes);
        }
        mapped.pieces.insert(address, size_bytes);
        Ok(())
    }

    /// Notes that a range is about to be unmapped.
    pub(super) fn forget_mapped(&self, address: DevicePtr) {
        self.mapped.lock().pieces.remove(&address);
    }

    /// Lets another device reach all memory that is mapped here, now and later, where both have a link.
    pub(super) fn let_reach(&self, reader: &Self) {
        let mut mapped = self.mapped.lock();
        let known = mapped.readers.iter().any(|(known, _)| *known == reader.index());
        if reader.index() == self.index() || known {
            return;
        }
        let linked = self.has_link_from(reader);
        mapped.readers.push((reader.index(), linked));
        if linked {
            for (&address, &size_bytes) in &mapped.pieces {
                // Copies find another way.
                let _ = self.let_one(reader.index(), address, size_bytes);
            }
        }
    }

    fn has_link_from(&self, reader: &Self) -> bool {
        let (mut own, mut other, mut can) = (0, 0, 0);
        // SAFETY: a place for the result.
        let found = done(unsafe { (self.driver.device)(&raw mut own, self.index().into()) })
            // SAFETY: as above.
            .and_then(|()| done(unsafe { (self.driver.device)(&raw mut other, reader.index().into()) }))
            // SAFETY: as above.
            .and_then(|()| done(unsafe { (self.driver.can_access_peer)(&raw mut can, other, own) }));
        found.is_ok() && can != 0
    }

    fn let_one(&self, index: u16, address: DevicePtr, size_bytes: usize) -> Result<(), Failure> {
        let mut location = self.properties().location;
        location.id = index.into();
        let flags = sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        // SAFETY: a mapped range, by the callers; one filled structure.
        done(unsafe { (self.driver.set_access)(address, size_bytes, &raw const access, 1) })
    }
}
