#![forbid(unsafe_code)]
//! The payload of a delegate that holds compiled code: which blob is the code, which blobs are the weights.
//!
//! ```text
//!   (empty)                        keys follow from the method's name
//!   so_key LF weights_key          one blob of weights
//!   ETCUDAFQN3 so_key constants    one blob per constant
//!   ETCUDAFQN4|5|0 variants constants   several builds of the code, for several GPUs
//! ```
//!
//! All numbers are little-endian and packed; a string is its length and its bytes. The form is told from the
//! first bytes, never by searching. Every length is checked before it is used.

use crate::delegate::DelegateError;
use crate::tensor::{DType, Dims};
use core::fmt::Write as _;

const MAGIC: &[u8] = b"ETCUDAFQN";
const SUPPORTED: &str = "two keys and ETCUDAFQN3, 4, 5 and 0";
const CONSTANTS_MAX: u32 = 1 << 20;
const VARIANTS_MAX: u32 = 256;

/// Where the code and the weights of one delegate are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payload {
    pub(crate) variants: Vec<Variant>,
    pub(crate) weights: Weights,
}

/// One build of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// The name of the code among the named data.
    pub(crate) key: String,
    /// The GPU it was built for, as major * 10 + minor; `None` where the payload does not say.
    pub(crate) target_sm: Option<u32>,
    /// The oldest GPU its portable code runs on, where it has any.
    pub(crate) ptx_compute: Option<u32>,
    /// Whether it is used only where no other fits.
    pub(crate) fallback_only: bool,
}

/// Where the weights are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Weights {
    /// All in one blob of this name.
    Blob(String),
    /// One blob per constant.
    PerConstant(Vec<Constant>),
}

/// One constant of the code.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// The name in the exported model.
    pub(crate) name: String,
    /// The name of its bytes among the named data.
    pub(crate) key: String,
    pub(crate) storage_bytes: u64,
    pub(crate) dtype: DType,
    pub(crate) on_device: bool,
    /// In elements.
    pub(crate) storage_offset: i64,
    pub(crate) sizes: Dims<i64>,
    pub(crate) strides: Dims<i64>,
}

impl Payload {
    /// Reads a payload. `method` and `has` (whether named data of this name exists) resolve the oldest form.
    pub(crate) fn parse(
        bytes: &[u8],
        method: &str,
        has: &dyn Fn(&str) -> bool,
    ) -> Result<Self, DelegateError> {
        if bytes.is_empty() {
            return Ok(Self::oldest(method, has));
        }
        match bytes.strip_prefix(MAGIC) {
            Some([b'3', rest @ ..]) => Self::per_constant(rest, Flags::SingleBuild),
            Some([b'4', rest @ ..]) => Self::per_constant(rest, Flags::Absent),
            Some([b'5' | b'0', rest @ ..]) => Self::per_constant(rest, Flags::Present),
            Some(rest) => Err(DelegateError::Format {
                format: format!(
                    "ETCUDAFQN{}",
                    rest.first()
                        .map(|&digit| char::from(digit).escape_default().to_string())
                        .unwrap_or_default()
                ),
                supported: SUPPORTED,
            }),
            None => Self::two_keys(bytes),
        }
    }

    fn single(key: String, weights: Weights) -> Self {
        let variant = Variant { key, target_sm: None, ptx_compute: None, fallback_only: false };
        Self { variants: vec![variant], weights }
    }

    fn oldest(method: &str, has: &dyn Fn(&str) -> bool) -> Self {
        let named = format!("{method}_so_blob");
        if has(&named) {
            Self::single(named, Weights::Blob(format!("{method}_weights_blob")))
        } else {
            Self::single("so_blob".into(), Weights::Blob("weights_blob".into()))
        }
    }

    fn two_keys(bytes: &[u8]) -> Result<Self, DelegateError> {
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let keys = core::str::from_utf8(text).ok().and_then(|text| text.split_once('\n'));
        match keys {
            Some((code, weights)) if !code.is_empty() && !weights.is_empty() => {
                Ok(Self::single(code.into(), Weights::Blob(weights.into())))
            }
            _ => Err(DelegateError::Format {
                format: format!("\"{}\"", bytes[..bytes.len().min(12)].escape_ascii()),
                supported: SUPPORTED,
            }),
        }
    }

    fn per_constant(bytes: &[u8], flags: Flags) -> Result<Self, DelegateError> {
        let mut reader = Reader { bytes, at: MAGIC.len() + 1 };
        let variants = match flags {
            Flags::SingleBuild => Self::single(reader.text("so key")?, Weights::Blob(String::new())).variants,
            Flags::Absent | Flags::Present => reader.variants(flags)?,
        };
        let count = reader.u32("number of constants")?;
        if count > CONSTANTS_MAX {
            return Err(corrupt(format!("{count} constants, at most {CONSTANTS_MAX}")));
        }
        let mut constants = Vec::new();
        for index in 0..count {
            constants.push(reader.constant(index)?);
        }
        if !reader.bytes.is_empty() {
            return Err(corrupt(format!(
                "{} bytes after the last constant of the payload",
                reader.bytes.len()
            )));
        }
        let mut names: Vec<&str> = constants.iter().map(|constant| constant.name.as_str()).collect();
        names.sort_unstable();
        let twice = names.iter().zip(names.iter().skip(1)).find(|(name, next)| name == next);
        if let Some((name, _)) = twice {
            return Err(corrupt(format!("constant {name:?} is listed twice")));
        }
        Ok(Self { variants, weights: Weights::PerConstant(constants) })
    }

    /// The build for a GPU of this compute capability (major * 10 + minor).
    pub(crate) fn variant_for(&self, capability: u32) -> Result<&Variant, DelegateError> {
        if let [only] = self.variants.as_slice()
            && only.target_sm.is_none()
        {
            return Ok(only);
        }
        let exact = |variant: &&Variant| !variant.fallback_only && variant.target_sm == Some(capability);
        let only_one = self.variants.len() == 1;
        let portable = |variant: &&Variant| {
            variant.ptx_compute.is_some_and(|oldest| oldest <= capability)
                && (variant.fallback_only || only_one)
        };
        let found = self.variants.iter().find(exact).or_else(|| self.variants.iter().find(portable));
        found.ok_or_else(|| {
            let built: Vec<_> = self
                .variants
                .iter()
                .map(|variant| format!("sm_{}", variant.target_sm.unwrap_or_default()))
                .collect();
            DelegateError::Incompatible {
                reason: format!(
                    "compiled for {}, this GPU is sm_{capability}; export the program again for it",
                    built.join(", ")
                ),
            }
        })
    }
}

/// What a payload says before its constants.
#[derive(Clone, Copy, PartialEq)]
enum Flags {
    SingleBuild,
    Absent,
    Present,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8], DelegateError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(count) else {
            return Err(corrupt(format!(
                "the payload ends in the {what}: {count} bytes at offset {}, {} left",
                self.at,
                self.bytes.len()
            )));
        };
        self.bytes = rest;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], DelegateError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, DelegateError> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn i32(&mut self, what: &str) -> Result<i32, DelegateError> {
        self.array(what).map(i32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, DelegateError> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn count(&mut self, what: &str) -> Result<i64, DelegateError> {
        let value = self.array(what).map(i64::from_le_bytes)?;
        if value < 0 { Err(corrupt(format!("the {what} is {value}"))) } else { Ok(value) }
    }

    fn text(&mut self, what: &str) -> Result<String, DelegateError> {
        let len = self.u32(what)?;
        let bytes = self.take(len as usize, what)?;
        match core::str::from_utf8(bytes) {
            Ok(text) if !text.is_empty() => Ok(text.into()),
            Ok(_) => Err(corrupt(format!("the {what} at offset {} is empty", self.at))),
            Err(_) => Err(corrupt(format!("the {what} at offset {} is not UTF-8", self.at))),
        }
    }

    fn variants(&mut self, flags: Flags) -> Result<Vec<Variant>, DelegateError> {
        let count = self.u32("number of variants")?;
        if count == 0 || count > VARIANTS_MAX {
            return Err(corrupt(format!("{count} variants, expected 1 to {VARIANTS_MAX}")));
        }
        let mut variants = Vec::new();
        for _ in 0..count {
            let target = self.u32("target of a variant")?;
            let ptx = self.u32("portable target of a variant")?;
            let bits = if flags == Flags::Present { self.u32("flags of a variant")? } else { 0 };
            variants.push(Variant {
                key: self.text("so key of a variant")?,
                target_sm: (target != 0).then_some(target),
                ptx_compute: (ptx != 0).then_some(ptx),
                fallback_only: bits & 1 != 0,
            });
        }
        Ok(variants)
    }

    fn dims(&mut self, rank: usize, what: &str) -> Result<Dims<i64>, DelegateError> {
        let mut dims = Dims::empty();
        for _ in 0..rank {
            let value = self.count(what)?;
            dims.push(value)
                .ok_or_else(|| corrupt(format!("a constant has {rank} dimensions, at most 16")))?;
        }
        Ok(dims)
    }

    fn constant(&mut self, index: u32) -> Result<Constant, DelegateError> {
        let name = self.text("name of a constant")?;
        let key = self.text("storage key of a constant")?;
        let storage_bytes = self.u64("storage size of a constant")?;
        let code = self.i32("element kind of a constant")?;
        let dtype = DType::from_code(code.into()).ok_or_else(|| {
            corrupt(format!("constant {index} ({name:?}) has the unknown element kind {code}"))
        })?;
        let on_device = match self.i32("device of a constant")? {
            0 => false,
            1 => true,
            other => return Err(corrupt(format!("constant {name:?} is on the unknown device type {other}"))),
        };
        let storage_offset = self.count("storage offset of a constant")?;
        let rank = self.u32("rank of a constant")? as usize;
        let sizes = self.dims(rank, "size of a constant")?;
        let strides = self.dims(rank, "stride of a constant")?;
        let constant =
            Constant { name, key, storage_bytes, dtype, on_device, storage_offset, sizes, strides };
        let needed = constant.needed_bytes();
        if needed.is_none_or(|needed| needed > storage_bytes) {
            return Err(corrupt(format!(
                "constant {:?} reaches outside its storage of {storage_bytes} bytes",
                constant.name
            )));
        }
        Ok(constant)
    }
}

impl Constant {
    /// The bytes from the start of the storage to the end of the last element; `None` where they overflow.
    pub(crate) fn needed_bytes(&self) -> Option<u64> {
        if self.sizes.contains(&0) {
            return Some(0);
        }
        let mut last = self.storage_offset;
        for (&size, &stride) in self.sizes.iter().zip(self.strides.iter()) {
            last = (size - 1).checked_mul(stride)?.checked_add(last)?;
        }
        let count = u64::try_from(last).ok()?.checked_add(1)?;
        count.checked_mul(self.dtype.size_bytes() as u64)
    }
}

fn corrupt(reason: String) -> DelegateError {
    DelegateError::Corrupt { reason }
}

/// The SHA-256 that the key of a code blob states: 64 hexadecimal digits before `_so_blob`.
pub(crate) fn digest_of_key(key: &str) -> Option<[u8; 32]> {
    let hex = key.strip_suffix("_so_blob").filter(|hex| hex.len() == 64 && hex.is_ascii())?;
    let mut digest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// A digest in hexadecimal.
pub(crate) fn hex(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_text(out: &mut Vec<u8>, text: &str) {
        out.extend(u32::try_from(text.len()).unwrap().to_le_bytes());
        out.extend(text.as_bytes());
    }

    fn put_constant(out: &mut Vec<u8>, name: &str, storage_bytes: u64) {
        put_text(out, name);
        put_text(out, &format!("cuda_fqn_weight:cuda:{name}"));
        out.extend(storage_bytes.to_le_bytes());
        out.extend(6_i32.to_le_bytes());
        out.extend(1_i32.to_le_bytes());
        out.extend(0_i64.to_le_bytes());
        out.extend(2_u32.to_le_bytes());
        for value in [8_i64, 4, 4, 1] {
            out.extend(value.to_le_bytes());
        }
    }

    fn sample() -> Vec<u8> {
        let mut out = b"ETCUDAFQN3".to_vec();
        put_text(&mut out, "k_so_blob");
        out.extend(2_u32.to_le_bytes());
        put_constant(&mut out, "kv_cache", 128);
        put_constant(&mut out, "w", 200);
        out
    }

    fn variants(digit: u8, rows: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut out = b"ETCUDAFQN".to_vec();
        out.push(digit);
        out.extend(u32::try_from(rows.len()).unwrap().to_le_bytes());
        for (index, row) in rows.iter().enumerate() {
            out.extend(row.0.to_le_bytes());
            out.extend(row.1.to_le_bytes());
            if digit != b'4' {
                out.extend(row.2.to_le_bytes());
            }
            put_text(&mut out, &format!("k{index}"));
        }
        out.extend(0_u32.to_le_bytes());
        out
    }

    fn parse(bytes: &[u8]) -> Result<Payload, DelegateError> {
        Payload::parse(bytes, "forward", &|key| key == "forward_so_blob")
    }

    #[test]
    fn each_form_is_told_from_its_first_bytes() {
        assert_eq!(parse(b"").unwrap().variants[0].key, "forward_so_blob");
        let oldest = Payload::parse(b"", "other", &|_| false).unwrap();
        assert_eq!(oldest.weights, Weights::Blob("weights_blob".into()));
        let two = parse(b"a_so_blob\nb_weights_blob\0\0").unwrap();
        assert_eq!(two.weights, Weights::Blob("b_weights_blob".into()));
        let Weights::PerConstant(constants) = parse(&sample()).unwrap().weights else {
            panic!("per constant")
        };
        assert_eq!((&*constants[0].name, constants[0].dtype), ("kv_cache", DType::Float32));
        assert_eq!((&*constants[1].sizes, &*constants[1].strides), (&[8, 4][..], &[4, 1][..]));
    }

    #[test]
    fn an_unknown_digit_is_refused_by_name() {
        let error = parse(b"ETCUDAFQN7....").unwrap_err().to_string();
        assert!(error.contains("ETCUDAFQN7"), "{error}");
        assert!(matches!(parse(b"no newline"), Err(DelegateError::Format { .. })));
    }

    #[test]
    fn every_truncation_and_every_extra_byte_is_refused() {
        let whole = sample();
        for len in 9..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len} bytes");
        }
        let mut longer = whole.clone();
        longer.push(0);
        assert!(matches!(parse(&longer), Err(DelegateError::Corrupt { .. })));
    }

    #[test]
    fn no_flipped_bit_makes_it_panic() {
        let whole = sample();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let _ = parse(&bytes);
            }
        }
    }

    #[test]
    fn a_constant_outside_its_storage_or_listed_twice_is_refused() {
        for (name, bytes, hint) in [("a", 127, "outside its storage"), ("kv_cache", 128, "listed twice")] {
            let mut out = b"ETCUDAFQN3".to_vec();
            put_text(&mut out, "k_so_blob");
            out.extend(2_u32.to_le_bytes());
            put_constant(&mut out, "kv_cache", 128);
            put_constant(&mut out, name, bytes);
            let error = parse(&out).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn the_build_is_chosen_for_the_gpu() {
        let payload = parse(&variants(b'5', &[(80, 0, 0), (90, 0, 0), (80, 80, 1)])).unwrap();
        assert_eq!(payload.variant_for(90).unwrap().key, "k1");
        assert_eq!(payload.variant_for(100).unwrap().key, "k2");
        assert!(payload.variant_for(75).unwrap_err().to_string().contains("sm_75"));
        let single = parse(&variants(b'4', &[(90, 90, 0)])).unwrap();
        assert_eq!(single.variant_for(100).unwrap().key, "k0");
        let unspecified = parse(&variants(b'0', &[(0, 0, 0)])).unwrap();
        assert_eq!(unspecified.variant_for(75).unwrap().key, "k0");
    }

    #[test]
    fn a_key_states_its_digest() {
        let key = format!("{}_so_blob", "0f".repeat(32));
        assert_eq!(digest_of_key(&key), Some([0x0f; 32]));
        assert_eq!(hex(&[0x0f; 32]), "0f".repeat(32));
        assert_eq!(digest_of_key("forward_so_blob"), None);
    }
}
