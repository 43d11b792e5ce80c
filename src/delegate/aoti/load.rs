//! Makes a delegate from its payload: finds the code, loads it, binds its constants.
//!
//! Deliberately absent: running.

use super::container::{Container, WantedConstant};
use super::handle::{CPU, Handle};
use super::library::{Code, Library, make_ready};
use super::loaded::{Loaded, Parts, Place};
use super::payload::{Constant, Payload, Weights as Listed, digest_of_key};
use super::platform::Platform;
use super::weights::{Weights, take};
use crate::delegate::{DelegateError, DelegateLoad, DelegatePayload, Preparation, StateSpec};
use crate::space::SpaceId;
use core::ptr::NonNull;
use std::sync::Arc;

/// Loads the delegate of one method.
pub(super) fn load(load: &mut DelegateLoad<'_>) -> Result<Loaded, DelegateError> {
    let held = load.payload;
    let payload = parse(&held)?;
    let platform = Platform::of(held.space)?;
    if !held.space.is_host() && load.queue.is_none() {
        return Err(DelegateError::Unavailable { reason: format!("no queue of {} was passed", held.space) });
    }
    let library = open(load, &payload, platform)?;
    let _entered = platform.enter()?;
    let container = Container::new(library, platform)?;
    let (inputs, outputs) = (container.inputs, container.outputs);
    if held.args_len != 0 && held.args_len != inputs + outputs {
        return Err(DelegateError::ArgumentCount { inputs, outputs, got: held.args_len });
    }
    let scratch = take(load.arenas, held.space, "scratch")?;
    let mut binder = Binder {
        container,
        device: Weights::shared(load.arenas, held.space, load.sharing)?,
        host: None,
        platform,
        state: Vec::new(),
        places: Vec::new(),
    };
    binder.bind(load, &payload)?;
    if let Some(queue) = &mut load.queue {
        queue.synchronize()?;
    }
    let Binder { container, device, host, state, places, .. } = binder;
    let weights = core::iter::once(device).chain(host).collect();
    Ok(Loaded::new(Parts { container, platform, space: held.space, weights, state, places, scratch }))
}

fn parse(held: &DelegatePayload<'_>) -> Result<Payload, DelegateError> {
    Payload::parse(held.processed, held.method, &|key| held.named.get(key).is_some())
}

/// Hashes and copies a payload's code, unless it is loaded: that takes longer than all else in loading.
pub(super) fn prepare<'a>(held: &DelegatePayload<'a>) -> Option<Preparation<'a>> {
    let payload = parse(held).ok()?;
    let platform = Platform::of(held.space).ok()?;
    let key = &payload.variant_for(platform.capability()).ok()?.key;
    if digest_of_key(key).is_some_and(|digest| Library::loaded(&digest).is_some()) {
        return None;
    }
    let bytes = held.named.get(key)?;
    Some(Box::new(move || Box::new(make_ready(bytes, platform))))
}

fn open(
    load: &mut DelegateLoad<'_>,
    payload: &Payload,
    platform: Platform,
) -> Result<&'static Library, DelegateError> {
    let variant = payload.variant_for(platform.capability())?;
    let named = load.payload.named;
    let bytes = named.get(&variant.key).ok_or_else(|| DelegateError::DataMissing {
        what: "the compiled code".into(),
        key: variant.key.clone(),
        size_bytes: None,
        searched: named.sources(),
        advice: "the program is incomplete; export it again",
    })?;
    let prepared = load.prepared.take();
    let ready = || {
        let prepared = prepared.and_then(|prepared| prepared.join().ok()?.downcast().ok());
        prepared.map_or_else(|| make_ready(bytes, platform), |ready| *ready)
    };
    let code = Code { digest: digest_of_key(&variant.key), rule: load.native_code };
    Library::load(&code, ready)
}

/// Binds the constants of one container.
struct Binder {
    container: Container,
    /// Constants where the code runs.
    device: Arc<Weights>,
    /// Constants on the host of code that runs elsewhere.
    host: Option<Arc<Weights>>,
    platform: Platform,
    state: Vec<StateSpec>,
    places: Vec<Place>,
}

impl Binder {
    fn bind(&mut self, load: &mut DelegateLoad<'_>, payload: &Payload) -> Result<(), DelegateError> {
        let wanted = self.container.constants()?;
        match &payload.weights {
            Listed::Blob(key) => self.bind_blob(load, key, &wanted),
            Listed::PerConstant(listed) => self.bind_each(load, listed, &wanted),
        }
    }

    fn bind_blob(
        &mut self,
        load: &DelegateLoad<'_>,
        key: &str,
        wanted: &[WantedConstant],
    ) -> Result<(), DelegateError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let sizes = wanted.iter().map(|constant| constant.size_bytes.unwrap_or(0));
        let total = sizes.clone().fold(0_usize, usize::saturating_add);
        let padded = sizes.fold(0_usize, |sum, size| sum.saturating_add(size).next_multiple_of(64));
        let blob =
            load.payload.named.get(key).ok_or_else(|| missing(load, "the weights", key, total as u64))?;
        if blob.len() != total && blob.len() != padded {
            let (expected_bytes, got_bytes) = (total as u64, blob.len() as u64);
            return Err(DelegateError::DataSize {
                what: "the weights".into(),
                key: key.into(),
                expected_bytes,
                got_bytes,
            });
        }
        // SAFETY: the code reads its constants one after the other, each padded or none, as was just compared.
        unsafe { self.container.bind_blob(blob) }
    }

    fn bind_each(
        &mut self,
        load: &mut DelegateLoad<'_>,
        listed: &[Constant],
        wanted: &[WantedConstant],
    ) -> Result<(), DelegateError> {
        let mut pairs: Vec<(&WantedConstant, *mut Handle)> = Vec::new();
        if let Err(error) = self.make_pairs(load, listed, wanted, &mut pairs) {
            for (_, handle) in pairs {
                // SAFETY: made here, and nobody else was told.
                unsafe { Handle::end_all(handle) };
            }
            return Err(error);
        }
        if pairs.is_empty() {
            return Ok(());
        }
        // SAFETY: the constants are this container's; the handles were just made over arena memory that the
        // weights keep, and they outlive the container.
        unsafe { self.container.bind(&pairs) }
    }

    fn make_pairs<'w>(
        &mut self,
        load: &mut DelegateLoad<'_>,
        listed: &[Constant],
        wanted: &'w [WantedConstant],
        pairs: &mut Vec<(&'w WantedConstant, *mut Handle)>,
    ) -> Result<(), DelegateError> {
        for constant in listed {
            let problem = |reason: String| DelegateError::Constant { name: constant.name.clone(), reason };
            let mut takers = wanted.iter().filter(|wanted| wanted.full_name == constant.name).peekable();
            let Some(first) = takers.peek() else {
                return Err(problem("the program lists it, its code has no such constant".into()));
            };
            if let Some(dtype) = first.dtype.filter(|dtype| *dtype != constant.dtype) {
                return Err(problem(format!("the program says {}, its code says {dtype}", constant.dtype)));
            }
            let is_state = first.is_buffer;
            let address = self.bring(load, constant)?;
            let device = if constant.on_device { self.platform.device() } else { (CPU, -1) };
            for taker in takers {
                let size_bytes = usize::try_from(constant.storage_bytes).unwrap_or(usize::MAX);
                let Constant { sizes, strides, storage_offset, dtype, .. } = constant;
                let handle =
                    Handle::borrow((address, size_bytes), device, sizes, strides, *storage_offset, *dtype);
                pairs.push((taker, handle));
            }
            if is_state {
                self.note_state(load, constant, address);
            }
        }
        let bound =
            |wanted: &&WantedConstant| pairs.iter().all(|(taken, _)| taken.full_name != wanted.full_name);
        match wanted.iter().find(bound) {
            Some(left) => Err(DelegateError::Constant {
                name: left.full_name.clone(),
                reason: "its code wants it, the program does not list it".into(),
            }),
            None => Ok(()),
        }
    }

    /// The memory of a constant, filled.
    fn bring(
        &mut self,
        load: &mut DelegateLoad<'_>,
        constant: &Constant,
    ) -> Result<NonNull<u8>, DelegateError> {
        let what = || format!("weights for {}", constant.name);
        let key = &constant.key;
        let found = load.payload.named.get(key);
        let bytes = found.ok_or_else(|| missing(load, &what(), key, constant.storage_bytes))?;
        if bytes.len() as u64 != constant.storage_bytes {
            let (expected_bytes, got_bytes) = (constant.storage_bytes, bytes.len() as u64);
            return Err(DelegateError::DataSize {
                what: what(),
                key: key.clone(),
                expected_bytes,
                got_bytes,
            });
        }
        if constant.on_device || load.payload.space.is_host() {
            return self.device.bring(bytes, load.queue.as_deref_mut());
        }
        if self.host.is_none() {
            self.host = Some(Weights::shared(load.arenas, SpaceId::HOST, load.sharing)?);
        }
        self.host.as_ref().map_or(Ok(NonNull::dangling()), |host| host.bring(bytes, None))
    }

    fn note_state(&mut self, load: &DelegateLoad<'_>, constant: &Constant, address: NonNull<u8>) {
        let sizes: Option<Vec<usize>> =
            constant.sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
        let dense = super::handle::is_dense(&constant.sizes, &constant.strides);
        let (Some(sizes), Some(bytes)) = (sizes, load.payload.named.get(&constant.key)) else { return };
        let whole = constant.needed_bytes() == Some(bytes.len() as u64);
        if !dense || !whole || constant.storage_offset != 0 {
            return;
        }
        let space = if constant.on_device { load.payload.space } else { SpaceId::HOST };
        self.state.push(StateSpec {
            name: constant.name.as_str().into(),
            dtype: constant.dtype,
            sizes: sizes.into(),
            space,
        });
        let initial = bytes.iter().any(|&byte| byte != 0).then(|| bytes.into());
        self.places.push(Place { address, size_bytes: bytes.len(), initial });
    }
}

fn missing(load: &DelegateLoad<'_>, what: &str, key: &str, size_bytes: u64) -> DelegateError {
    DelegateError::DataMissing {
        what: what.into(),
        key: key.into(),
        size_bytes: Some(size_bytes),
        searched: load.payload.named.sources(),
        advice: "pass the .ptd file written beside the .pte file",
    }
}
