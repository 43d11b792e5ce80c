#![forbid(unsafe_code)]
//! Which GPUs a kernel image was compiled for, from its header.
//!
//! ```text
//!   fatbin: magic u32 │ version u16 │ header size u16 │ payload size u64 │ entries …
//!   entry:  kind u16 @0 (1 PTX, 2 ELF) │ header size u32 @4 │ payload size u64 @8 │ arch u32 @28 │ …
//! ```
//!
//! Deliberately absent: the code itself, and any judgement about it.

const MAGIC: u32 = 0xBA55_ED50;
const MACHINE_CUDA: u16 = 190;
const ENTRIES_MAX: usize = 256;

/// One image inside a fatbin: the compute capability it was made for, as major * 10 + minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Machine code.
    Binary(u32),
    /// Portable code, which a newer driver may compile for a newer GPU.
    Portable(u32),
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn size_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

/// The targets of the image at the start of `bytes`; empty where it is of no known form. Never fails: the
/// driver has the last word.
pub(crate) fn targets(bytes: &[u8]) -> Vec<Target> {
    if bytes.starts_with(b"\x7fELF") {
        // A plain device binary names its target in the low bytes of its flags.
        let plain = u16_at(bytes, 18) == Some(MACHINE_CUDA);
        return u32_at(bytes, 48)
            .filter(|_| plain)
            .map(|flags| Target::Binary(flags & 0xff))
            .into_iter()
            .collect();
    }
    entries(bytes).unwrap_or_default()
}

fn entries(bytes: &[u8]) -> Option<Vec<Target>> {
    if u32_at(bytes, 0)? != MAGIC {
        return None;
    }
    let start = usize::from(u16_at(bytes, 6)?);
    let end = start.checked_add(size_at(bytes, 8)?)?;
    let mut rest = bytes.get(start..end.min(bytes.len()))?;
    let mut found = Vec::new();
    while found.len() < ENTRIES_MAX && !rest.is_empty() {
        let Some(arch) = u32_at(rest, 28) else { break };
        match u16_at(rest, 0)? {
            1 => found.push(Target::Portable(arch)),
            2 => found.push(Target::Binary(arch)),
            _ => {}
        }
        let header = u32_at(rest, 4)? as usize;
        let step = header.checked_add(size_at(rest, 8)?)?;
        match rest.get(step..) {
            Some(next) if step > 0 => rest = next,
            _ => break,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u16, arch: u32, payload: usize) -> Vec<u8> {
        let mut out = vec![0; 64 + payload];
        out[0..2].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&64_u32.to_le_bytes());
        out[8..16].copy_from_slice(&(payload as u64).to_le_bytes());
        out[28..32].copy_from_slice(&arch.to_le_bytes());
        out
    }

    fn sample() -> Vec<u8> {
        let body = [entry(2, 90, 8), entry(1, 90, 24)].concat();
        let mut out = MAGIC.to_le_bytes().to_vec();
        out.extend([1, 0, 16, 0]);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(body);
        out
    }

    #[test]
    fn each_image_names_its_target() {
        assert_eq!(targets(&sample()), [Target::Binary(90), Target::Portable(90)]);
        assert_eq!(targets(b"something else"), []);
    }

    #[test]
    fn damage_is_never_fatal() {
        let whole = sample();
        for len in 0..whole.len() {
            let _ = targets(&whole[..len]);
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            let _ = targets(&bytes);
        }
    }
}
