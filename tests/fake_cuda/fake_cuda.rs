//! A stand-in for the CUDA driver: its entry points over guarded host memory. A test double; running on it is
//! not running on CUDA.
//!
//! ```text
//!   device address ──► pages that nothing may touch     a host access by mistake faults
//!        └ shadow ───► the bytes, reached by copies, fills and the one kernel known here
//! ```
//!
//! * Streams are lazy: work is done when something waits for it, so whatever goes away too early is missed.
//! * `fake_fail_after(n)` makes the n-th call from now fail; `fake_live()` counts what is not given back.
//! * The kernel of the seed program, `relu(x * y + x) * 2`, is computed; all others only counted.
//!
//! Built by the tests with `rustc --crate-type cdylib` and the name of the driver's library inside.
#![allow(
    non_snake_case,
    clippy::missing_safety_doc,
    clippy::pedantic,
    missing_docs,
    reason = "a C interface"
)]

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard};

const INVALID: c_uint = 1;
const OUT_OF_MEMORY: c_uint = 2;
const NO_DEVICE: c_uint = 100;
const BAD_DEVICE: c_uint = 101;
const NO_CONTEXT: c_uint = 201;
const GRANULARITY: usize = 2 << 20;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, len: usize) -> c_int;
}

struct Range {
    len: usize,
    shadow: Option<usize>,
}

#[derive(Clone)]
enum Op {
    Copy { to: usize, from: usize, len: usize },
    Write { to: usize, bytes: Vec<u8> },
    Fill { to: usize, byte: u8, len: usize },
    Seed { pointers: [usize; 3], count: usize },
    Unknown,
    Event(usize),
}

#[derive(Default)]
struct Stream {
    work: Vec<Op>,
}

#[derive(Default)]
struct Fake {
    devices: c_int,
    capacity: usize,
    used: usize,
    calls: u64,
    fail_at: u64,
    launches: u64,
    allocations: u64,
    copies: u64,
    next: usize,
    /// Device ranges: whole allocations, or mapped pieces of reservations.
    ranges: BTreeMap<usize, Range>,
    /// Start to length and shadow.
    reservations: BTreeMap<usize, (usize, usize)>,
    physical: HashMap<u64, usize>,
    host: BTreeMap<usize, usize>,
    streams: HashMap<usize, Stream>,
    events: HashMap<usize, bool>,
    graphs: HashMap<usize, Vec<Op>>,
    functions: Vec<String>,
    /// Mappings, and devices that reach them.
    access: Vec<(usize, c_int)>,
}

static FAKE: LazyLock<Mutex<Fake>> =
    LazyLock::new(|| Mutex::new(Fake { devices: 1, capacity: 1 << 40, next: 1, ..Fake::default() }));

thread_local! {
    static CURRENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn lock() -> MutexGuard<'static, Fake> {
    FAKE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Counts the call; gives the failure where it is this call's turn.
fn enter() -> Result<MutexGuard<'static, Fake>, c_uint> {
    let mut fake = lock();
    fake.calls += 1;
    if fake.calls == fake.fail_at { Err(OUT_OF_MEMORY) } else { Ok(fake) }
}

fn status(done: Result<(), c_uint>) -> c_uint {
    done.err().unwrap_or(0)
}

/// New pages: private, anonymous, no swap promised.
fn anonymous(len: usize, protection: c_int) -> usize {
    let at = unsafe { mmap(std::ptr::null_mut(), len, protection, 0x4022, -1, 0) };
    if at as isize == -1 { 0 } else { at as usize }
}

fn pages(len: usize) -> usize {
    len.max(1).next_multiple_of(4096)
}

impl Fake {
    fn id(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    /// Where the bytes of an address are: in the shadow of a device range, or right there.
    fn real(&self, address: usize, len: usize) -> Result<usize, c_uint> {
        if let Some((&start, &(whole, shadow))) = self.reservations.range(..=address).next_back()
            && address < start + whole
        {
            let mut at = address;
            while at < address + len {
                // Every byte must have memory behind it.
                let mapped = self.ranges.range(..=at).next_back().map(|(&from, range)| from + range.len);
                at = mapped.filter(|&end| end > at).ok_or(INVALID)?;
            }
            return Ok(shadow + (address - start));
        }
        if let Some((&start, range)) = self.ranges.range(..=address).next_back()
            && address < start + range.len
        {
            let inside = address - start;
            return range
                .shadow
                .filter(|_| inside + len <= range.len)
                .map(|shadow| shadow + inside)
                .ok_or(INVALID);
        }
        Ok(address)
    }

    fn do_op(&mut self, op: &Op) -> Result<(), c_uint> {
        match op {
            Op::Copy { to, from, len } => {
                let (to, from) = (self.real(*to, *len)?, self.real(*from, *len)?);
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, *len) };
            }
            Op::Write { to, bytes } => {
                let to = self.real(*to, bytes.len())?;
                unsafe { std::ptr::copy(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            }
            Op::Fill { to, byte, len } => {
                let to = self.real(*to, *len)?;
                unsafe { std::ptr::write_bytes(to as *mut u8, *byte, *len) };
            }
            Op::Seed { pointers, count } => {
                let real: Vec<usize> =
                    pointers.iter().map(|at| self.real(*at, count * 4)).collect::<Result<_, _>>()?;
                for index in 0..*count {
                    let at = |which: usize| (real[which] + index * 4) as *mut f32;
                    let (x, y) = unsafe { (at(0).read(), at(1).read()) };
                    unsafe { at(2).write((x * y + x).max(0.0) * 2.0) };
                }
            }
            Op::Unknown => {}
            Op::Event(event) => {
                if let Some(done) = self.events.get_mut(event) {
                    *done = true;
                }
            }
        }
        Ok(())
    }

    fn drain(&mut self, stream: usize) -> Result<(), c_uint> {
        let work = self.streams.get_mut(&stream).map(|stream| std::mem::take(&mut stream.work));
        work.unwrap_or_default().iter().try_for_each(|op| self.do_op(op))
    }

    fn drain_all(&mut self) -> Result<(), c_uint> {
        let streams: Vec<usize> = self.streams.keys().copied().collect();
        streams.into_iter().try_for_each(|stream| self.drain(stream))
    }

    fn queue(&mut self, stream: usize, op: Op) -> Result<(), c_uint> {
        if CURRENT.get() == 0 {
            return Err(NO_CONTEXT);
        }
        self.copies += u64::from(matches!(op, Op::Copy { .. } | Op::Write { .. }));
        self.streams.entry(stream).or_default().work.push(op);
        Ok(())
    }

    /// Adds a node to a graph, where it is told that it comes after the one before.
    fn add_node(&mut self, graph: usize, after: &[usize], op: Op) -> Result<usize, c_uint> {
        let nodes = self.graphs.get_mut(&graph).ok_or(INVALID)?;
        let last: &[usize] = if nodes.is_empty() { &[] } else { &[nodes.len()] };
        if after != last {
            return Err(INVALID);
        }
        nodes.push(op);
        Ok(nodes.len())
    }

    /// What a kernel does.
    ///
    /// # Safety
    /// `arguments` are those of the kernel.
    unsafe fn kernel(&self, function: usize, arguments: *const *const c_void) -> Result<Op, c_uint> {
        let name = self.functions.get(function.wrapping_sub(1)).ok_or(INVALID)?;
        let argument = |index: usize| unsafe { *arguments.add(index) };
        let word = |index: usize| unsafe { argument(index).cast::<usize>().read() };
        match name.as_str() {
            "triton_poi_fused_add_mul_relu_0" => {
                let count = unsafe { argument(3).cast::<i32>().read() };
                Ok(Op::Seed { pointers: [word(0), word(1), word(2)], count: count as usize })
            }
            "arenite_copy" => Ok(Op::Copy { to: word(0), from: word(1), len: word(2) }),
            _ => Ok(Op::Unknown),
        }
    }

    fn is_pinned(&self, address: usize) -> bool {
        self.host.range(..=address).next_back().is_some_and(|(&start, &len)| address < start + len)
    }

    fn claim(&mut self, len: usize) -> Result<(), c_uint> {
        self.allocations += 1;
        if self.used + len > self.capacity {
            return Err(OUT_OF_MEMORY);
        }
        self.used += len;
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_reset(devices: c_int, capacity: usize) {
    let mut fake = lock();
    (fake.devices, fake.capacity, fake.fail_at) = (devices, capacity, 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_fail_after(calls: u64) {
    let mut fake = lock();
    fake.fail_at = if calls == 0 { 0 } else { fake.calls + calls };
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_has_failed() -> bool {
    let fake = lock();
    fake.fail_at != 0 && fake.calls >= fake.fail_at
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_launches() -> u64 {
    lock().launches
}

/// Copies queued, ever, on the device and across the bus.
#[unsafe(no_mangle)]
pub extern "C" fn fake_copies() -> u64 {
    lock().copies
}

/// Calls that took memory, ever.
#[unsafe(no_mangle)]
pub extern "C" fn fake_allocations() -> u64 {
    lock().allocations
}

/// Objects that were not given back: ranges, reservations, physical memory, pinned blocks, streams, graphs.
#[unsafe(no_mangle)]
pub extern "C" fn fake_live() -> usize {
    let fake = lock();
    let memory = fake.ranges.len() + fake.reservations.len() + fake.physical.len() + fake.host.len();
    memory + fake.streams.keys().filter(|&&stream| stream != 0).count() + fake.graphs.len()
}

#[unsafe(no_mangle)]
pub extern "C" fn fake_live_bytes() -> usize {
    lock().used
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_uint {
    if lock().devices == 0 { NO_DEVICE } else { 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(out: *mut c_int) -> c_uint {
    unsafe { out.write(13000) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_code: c_uint, out: *mut *const c_char) -> c_uint {
    unsafe { out.write(c"FAKE_ERROR".as_ptr()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_code: c_uint, out: *mut *const c_char) -> c_uint {
    unsafe { out.write(c"an error of the stand-in".as_ptr()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(out: *mut c_int) -> c_uint {
    unsafe { out.write(lock().devices) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(out: *mut c_int, index: c_int) -> c_uint {
    if index >= lock().devices {
        return BAD_DEVICE;
    }
    unsafe { out.write(index) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(out: *mut c_char, len: c_int, _device: c_int) -> c_uint {
    let name = b"Stand-in\0";
    let len = name.len().min(len as usize);
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr(), out.cast(), len) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(out: *mut c_int, which: c_int, _device: c_int) -> c_uint {
    let value = match which {
        75 => 9,
        76 => 0,
        102 => 1,
        _ => 0,
    };
    unsafe { out.write(value) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, _device: c_int) -> c_uint {
    unsafe { out.write(lock().capacity) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(out: *mut c_int, _device: c_int, _peer: c_int) -> c_uint {
    status(enter().map(|_fake| unsafe { out.write(1) }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut usize, device: c_int) -> c_uint {
    unsafe { out.write(0x1000 + device as usize) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(out: *mut usize) -> c_uint {
    unsafe { out.write(CURRENT.get()) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> c_uint {
    CURRENT.set(context);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_uint {
    let fake = lock();
    unsafe { free.write(fake.capacity.saturating_sub(fake.used)) };
    unsafe { total.write(fake.capacity) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(out: *mut usize, len: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        if CURRENT.get() == 0 {
            return Err(NO_CONTEXT);
        }
        fake.claim(len)?;
        let (guarded, shadow) = (anonymous(pages(len), 0), anonymous(pages(len), 3));
        fake.ranges.insert(guarded, Range { len, shadow: Some(shadow) });
        unsafe { out.write(guarded) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: usize) -> c_uint {
    let mut fake = lock();
    let Some(range) = fake.ranges.remove(&address) else { return INVALID };
    fake.used -= range.len;
    unsafe { munmap(address as *mut c_void, pages(range.len)) };
    unsafe { munmap(range.shadow.unwrap_or(0) as *mut c_void, pages(range.len)) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(out: *mut usize, len: usize, _flags: c_uint) -> c_uint {
    status(enter().and_then(|mut fake| {
        fake.allocations += 1;
        // As the driver: small blocks do not start where a page does.
        let at = anonymous(pages(len + SMALL_HOST_OFFSET), 3) + host_offset(len);
        fake.host.insert(at, len);
        unsafe { out.write(at) };
        Ok(())
    }))
}

const SMALL_HOST_OFFSET: usize = 512;

fn host_offset(len: usize) -> usize {
    if len < 1 << 16 { SMALL_HOST_OFFSET } else { 0 }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: usize) -> c_uint {
    let Some(len) = lock().host.remove(&address) else { return INVALID };
    unsafe { munmap((address - host_offset(len)) as *mut c_void, pages(len + SMALL_HOST_OFFSET)) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(
    out: *mut usize,
    len: usize,
    align: usize,
    _at: usize,
    _flags: u64,
) -> c_uint {
    status(enter().and_then(|mut fake| {
        if len % GRANULARITY != 0 || align > GRANULARITY {
            return Err(INVALID);
        }
        // Twice as much as asked, so that an aligned part of it is large enough; never given back.
        let at = anonymous(len + GRANULARITY, 0).next_multiple_of(GRANULARITY);
        let shadow = anonymous(len, 3);
        fake.reservations.insert(at, (len, shadow));
        unsafe { out.write(at) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(address: usize, len: usize) -> c_uint {
    let mut fake = lock();
    let mapped = fake.ranges.range(address..address + len).next().is_some();
    match fake.reservations.get(&address) {
        Some(&(whole, shadow)) if whole == len && !mapped => unsafe { munmap(shadow as *mut c_void, len) },
        _ => return INVALID,
    };
    fake.reservations.remove(&address);
    unsafe { munmap(address as *mut c_void, len) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(out: *mut u64, len: usize, _prop: *const c_void, _flags: u64) -> c_uint {
    status(enter().and_then(|mut fake| {
        if len % GRANULARITY != 0 {
            return Err(INVALID);
        }
        fake.claim(len)?;
        let handle = fake.id() as u64;
        fake.physical.insert(handle, len);
        unsafe { out.write(handle) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> c_uint {
    let mut fake = lock();
    let Some(len) = fake.physical.remove(&handle) else { return INVALID };
    fake.used -= len;
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(address: usize, len: usize, offset: usize, handle: u64, _flags: u64) -> c_uint {
    status(enter().and_then(|mut fake| {
        let found = fake.reservations.range(..=address).next_back();
        let reserved = found.is_some_and(|(&start, &(whole, _))| address + len <= start + whole);
        if fake.physical.get(&handle) != Some(&len) || offset != 0 || !reserved {
            return Err(INVALID);
        }
        fake.ranges.insert(address, Range { len, shadow: None });
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(address: usize, len: usize) -> c_uint {
    let mut fake = lock();
    match fake.ranges.remove(&address) {
        Some(range) if range.len == len => 0,
        _ => INVALID,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(
    address: usize,
    _len: usize,
    access: *const [c_int; 3],
    count: usize,
) -> c_uint {
    status(enter().map(|mut fake| {
        for at in 0..count {
            let [_, device, _] = unsafe { access.add(at).read() };
            fake.access.push((address, device));
        }
    }))
}

/// Whether a device was let reach the mapping that starts at this address.
#[unsafe(no_mangle)]
pub extern "C" fn fake_lets(address: usize, device: c_int) -> bool {
    lock().access.contains(&(address, device))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(
    out: *mut usize,
    _p: *const c_void,
    _o: c_uint,
) -> c_uint {
    unsafe { out.write(GRANULARITY) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAsync(to: usize, from: usize, len: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| fake.queue(stream, Op::Copy { to, from, len })))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, len: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        if fake.is_pinned(from) {
            return fake.queue(stream, Op::Copy { to, from, len });
        }
        let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) }.to_vec();
        fake.queue(stream, Op::Write { to, bytes })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, len: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        let pinned = fake.is_pinned(to);
        fake.queue(stream, Op::Copy { to, from, len })?;
        if pinned { Ok(()) } else { fake.drain(stream) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    to: usize,
    _to_context: usize,
    from: usize,
    _from_context: usize,
    len: usize,
    stream: usize,
) -> c_uint {
    status(enter().and_then(|mut fake| fake.queue(stream, Op::Copy { to, from, len })))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy(to: usize, from: usize, len: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        fake.drain_all()?;
        fake.do_op(&Op::Copy { to, from, len })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: usize, byte: u8, len: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| fake.queue(stream, Op::Fill { to, byte, len })))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(out: *mut usize, _flags: c_uint) -> c_uint {
    status(enter().and_then(|mut fake| {
        let id = fake.id();
        fake.streams.insert(id, Stream::default());
        unsafe { out.write(id) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: usize) -> c_uint {
    let mut fake = lock();
    let _ = fake.drain(stream);
    if fake.streams.remove(&stream).is_some() { 0 } else { INVALID }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| fake.drain(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_uint {
    status(enter().and_then(|mut fake| fake.drain_all()))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(_stream: usize, event: usize, _flags: c_uint) -> c_uint {
    status(enter().and_then(|mut fake| {
        // Laziness across streams would need a graph of waits: do the work of all instead.
        if fake.events.contains_key(&event) { fake.drain_all() } else { Err(INVALID) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(out: *mut usize, _flags: c_uint) -> c_uint {
    status(enter().and_then(|mut fake| {
        let id = fake.id();
        fake.events.insert(id, true);
        unsafe { out.write(id) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: usize) -> c_uint {
    if lock().events.remove(&event).is_some() { 0 } else { INVALID }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        fake.events.insert(event, false);
        fake.queue(stream, Op::Event(event))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(event: usize) -> c_uint {
    match lock().events.get(&event) {
        Some(true) => 0,
        Some(false) => 600,
        None => INVALID,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: usize) -> c_uint {
    status(
        enter().and_then(
            |mut fake| if fake.events.contains_key(&event) { fake.drain_all() } else { Err(INVALID) },
        ),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(out: *mut usize, _flags: c_uint) -> c_uint {
    status(enter().map(|mut fake| {
        let id = fake.id();
        fake.graphs.insert(id, Vec::new());
        unsafe { out.write(id) };
    }))
}

/// What `cuGraphAddMemcpyNode` takes, of which only these are looked at.
#[repr(C)]
pub struct Copy3d {
    source_offsets: [usize; 4],
    source_kind: c_uint,
    source_host: usize,
    source: usize,
    source_rest: [usize; 4],
    target_offsets: [usize; 4],
    target_kind: c_uint,
    target_host: usize,
    target: usize,
    target_rest: [usize; 4],
    width: usize,
    height: usize,
    depth: usize,
}

/// The kind of an address that may be anywhere.
const UNIFIED: c_uint = 4;

unsafe fn copy_op(copy: *const Copy3d) -> Result<Op, c_uint> {
    let copy = unsafe { &*copy };
    if (copy.source_kind, copy.target_kind, copy.height, copy.depth) != (UNIFIED, UNIFIED, 1, 1) {
        return Err(INVALID);
    }
    Ok(Op::Copy { to: copy.target, from: copy.source, len: copy.width })
}

unsafe fn before(nodes: *const usize, count: usize) -> &'static [usize] {
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(nodes, count) } }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemcpyNode(
    out: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    copy: *const Copy3d,
    _context: usize,
) -> c_uint {
    status(enter().and_then(|mut fake| {
        let op = unsafe { copy_op(copy) }?;
        let node = fake.add_node(graph, unsafe { before(after, count) }, op)?;
        unsafe { out.write(node) };
        Ok(())
    }))
}

/// What `cuGraphAddMemsetNode` takes.
#[repr(C)]
pub struct Fill2d {
    target: usize,
    pitch: usize,
    value: c_uint,
    element_bytes: c_uint,
    width: usize,
    height: usize,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddMemsetNode(
    out: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    fill: *const Fill2d,
    _context: usize,
) -> c_uint {
    status(enter().and_then(|mut fake| {
        let fill = unsafe { &*fill };
        if (fill.element_bytes, fill.height) != (1, 1) {
            return Err(INVALID);
        }
        let op = Op::Fill { to: fill.target, byte: fill.value as u8, len: fill.width };
        let node = fake.add_node(graph, unsafe { before(after, count) }, op)?;
        unsafe { out.write(node) };
        Ok(())
    }))
}

/// What `cuGraphAddKernelNode` takes.
#[repr(C)]
pub struct KernelNode {
    function: usize,
    grid_block_and_shared: [c_uint; 7],
    arguments: *const *const c_void,
    extra: *const c_void,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode(
    out: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
    kernel: *const KernelNode,
) -> c_uint {
    status(enter().and_then(|mut fake| {
        let kernel = unsafe { &*kernel };
        let op = unsafe { fake.kernel(kernel.function, kernel.arguments) }?;
        let node = fake.add_node(graph, unsafe { before(after, count) }, op)?;
        unsafe { out.write(node) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(out: *mut usize, graph: usize, _flags: u64) -> c_uint {
    status(enter().and_then(|mut fake| {
        let work = fake.graphs.get(&graph).cloned().ok_or(INVALID)?;
        let id = fake.id();
        fake.graphs.insert(id, work);
        unsafe { out.write(id) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(graph: usize, stream: usize) -> c_uint {
    status(enter().and_then(|mut fake| {
        let work = fake.graphs.get(&graph).cloned().ok_or(INVALID)?;
        work.into_iter().try_for_each(|op| fake.queue(stream, op))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(graph: usize) -> c_uint {
    if lock().graphs.remove(&graph).is_some() { 0 } else { INVALID }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: usize) -> c_uint {
    cuGraphExecDestroy(graph)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(out: *mut usize, _image: *const c_void) -> c_uint {
    status(enter().map(|mut fake| unsafe { out.write(fake.id()) }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(_module: usize) -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(out: *mut usize, _module: usize, name: *const c_char) -> c_uint {
    status(enter().map(|mut fake| {
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        fake.functions.push(name);
        unsafe { out.write(fake.functions.len()) };
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(_function: usize, _which: c_int, _value: c_int) -> c_uint {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: usize,
    arguments: *const *const c_void,
    _extra: *const c_void,
) -> c_uint {
    status(enter().and_then(|mut fake| {
        fake.launches += 1;
        let op = unsafe { fake.kernel(function, arguments) }?;
        fake.queue(stream, op)
    }))
}
