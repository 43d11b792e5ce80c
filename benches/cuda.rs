//! Times of CUDA programs, on the machine with the GPU.
//!
//! `ARENITE_CUDA_PROGRAMS=FOLDER cargo bench --features cuda --bench cuda` prints one line per measurement: each
//! program's load, first run, and median of 2,000 runs with inputs and outputs on the host, eager and as a
//! graph; arenas; copies, beside the same copies by hand. Answers are checked by `tests/cuda`.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "several calls of the driver on the same memory")]

#[path = "../tests/all/support/mod.rs"]
mod support;

#[path = "by_hand/mod.rs"]
mod by_hand;

use arenite::exec::{DeviceTensor, Input, LoadOptions, Loader, Method, Output, TensorInput};
use arenite::program::{Program, ProgramOptions};
use arenite::space::cuda::{CudaQueue, CudaSpace, Device, PinnedSpace, absence};
use arenite::space::{Piece, Queue};
use arenite::tensor::DType;
use arenite::{Arena, ArenaSet, HostSpace, MemorySpace, SpaceId};
use by_hand::ByHand;
use core::alloc::Layout;
use core::ptr::NonNull;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::kernel::Data;
use support::npz;

const PROGRAMS: [&str; 9] =
    ["seed_net", "seed_net_dyn", "two_out", "seed_net_bf16", "mlp", "norm", "kv", "conv", "deep_norm"];
const RUNS: usize = 2000;

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn arenas() -> ArenaSet {
    ArenaSet::builder()
        .space(Arc::new(HostSpace::new()))
        .space(Arc::new(PinnedSpace::new().unwrap()))
        .space(Arc::new(CudaSpace::new(0).unwrap()))
        .build()
}

struct Inputs {
    data: Vec<Data>,
    strides: Vec<Vec<isize>>,
}

impl Inputs {
    fn read(folder: &Path, name: &str, program: &Program) -> Self {
        let arrays = npz::read(folder.join(format!("{name}.npz")));
        let plan = &program.methods()[0];
        let mut data = Vec::new();
        for (index, &id) in plan.inputs.iter().enumerate() {
            let array = arrays[&format!("{}.in{index}", plan.name)].clone();
            let planned = plan.tensor(id).unwrap().dtype;
            data.push(if planned == DType::BFloat16 {
                let bytes: Vec<u8> = array
                    .get::<f32>()
                    .iter()
                    .flat_map(|&value| half::bf16::from_f32(value).to_le_bytes())
                    .collect();
                Data::of_bytes(planned, &array.sizes, &bytes)
            } else {
                array
            });
        }
        let strides = data
            .iter()
            .map(|data| {
                let mut step = data.dtype.size_bytes().cast_signed();
                let mut strides = vec![0; data.sizes.len()];
                for (slot, &size) in strides.iter_mut().zip(&data.sizes).rev() {
                    *slot = step;
                    step *= size.max(1).cast_signed();
                }
                strides
            })
            .collect();
        Self { data, strides }
    }

    fn list(&self) -> Vec<Input<'_>> {
        self.data
            .iter()
            .zip(&self.strides)
            .map(|(data, strides)| {
                // SAFETY: the strides are those of the row-major bytes, which are borrowed.
                Input::Tensor(unsafe {
                    TensorInput::new(data.bytes.as_ptr(), data.dtype, &data.sizes, strides, data.space)
                })
            })
            .collect()
    }
}

fn run(method: &mut Method, inputs: &[Input<'_>], target: &mut [u8]) {
    let outputs = method.execute(inputs).unwrap();
    if let Output::Tensor(tensor) = outputs.get(0) {
        for (slot, cell) in target.iter_mut().zip(tensor.read_bytes().unwrap()) {
            *slot = cell.get();
        }
    }
}

/// Median and best of many runs, in microseconds.
fn time_runs(method: &mut Method, inputs: &[Input<'_>]) -> (f64, f64) {
    let mut target = vec![0; 1 << 16];
    for _ in 0..50 {
        run(method, inputs, &mut target);
    }
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run(method, inputs, &mut target);
            start.elapsed()
        })
        .collect();
    let middle = median(&mut times);
    (middle, times[0].as_secs_f64() * 1e6)
}

fn time_program(hand: &ByHand, folder: &Path, name: &str) {
    if !folder.join(format!("{name}.pte")).exists() {
        return;
    }
    let (options, data) = (ProgramOptions::new(), folder.join(format!("{name}.ptd")));
    let options = if data.exists() { options.with_data_file(data) } else { options };
    let open = || Arc::new(Program::open(folder.join(format!("{name}.pte")), &options).unwrap());
    let set = arenas();
    let load = || {
        let start = Instant::now();
        let mut options = LoadOptions::new(set.clone());
        options.capture_after = None;
        let method = Loader::new(open(), options).load("forward").unwrap();
        (start.elapsed(), method)
    };
    let (first_load, mut method) = load();
    let program = Arc::clone(method.program());
    let inputs = Inputs::read(folder, name, &program);
    let list = inputs.list();
    let start = Instant::now();
    run(&mut method, &list, &mut [0; 4]);
    let first_run = start.elapsed();
    let mut loads: Vec<Duration> = (0..20).map(|_| load().0).collect();
    let (eager, eager_best) = time_runs(&mut method, &list);
    method.capture().unwrap();
    let (graph, graph_best) = time_runs(&mut method, &list);
    let device = hand.device_time(RUNS / 10, |stream| {
        // SAFETY: a live stream of this device; the inputs are on the host.
        drop(unsafe { method.execute_on(Some(stream), &list) }.unwrap());
    });
    println!("ok device_time_{name} graph {device:.1} us from the first byte to the last, by events");
    println!(
        "ok rust_{name} load {:.0} us first, {:.0} later; first run {:.0} us; eager {eager:.1} us (best {eager_best:.1}), graph {graph:.1} us (best {graph_best:.1})",
        first_load.as_secs_f64() * 1e6,
        median(&mut loads),
        first_run.as_secs_f64() * 1e6,
    );
}

/// Device tensors in and out on the default stream: given to the device, and waited for.
fn time_resident(hand: &ByHand, folder: &Path) {
    if !folder.join("resident_net.pte").exists() {
        return;
    }
    let (space, set) = (SpaceId::cuda(0), arenas());
    let program = Arc::new(Program::open(folder.join("resident_net.pte"), &ProgramOptions::new()).unwrap());
    let host = Inputs::read(folder, "resident_net", &program);
    let mut method = Loader::new(program, LoadOptions::new(set.clone())).load("forward").unwrap();
    let tensors: Vec<DeviceTensor> = host
        .data
        .iter()
        .map(|data| DeviceTensor::upload(&set, space, (data.dtype, &data.sizes), &data.bytes).unwrap())
        .collect();
    let mut time = |waits: bool| {
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                let inputs: Vec<Input<'_>> = tensors
                    .iter()
                    .zip(&host.strides)
                    .map(|(tensor, strides)| {
                        // SAFETY: device memory that the tensor keeps, row-major.
                        Input::Tensor(unsafe {
                            TensorInput::new(
                                tensor.address().as_ptr(),
                                tensor.dtype(),
                                tensor.sizes(),
                                strides,
                                space,
                            )
                        })
                    })
                    .collect();
                // SAFETY: the default stream; the inputs outlive the work.
                let mut outputs = unsafe { method.execute_on(Some(0), &inputs) }.unwrap();
                let output = outputs.take_device(0).unwrap();
                drop(outputs);
                if waits {
                    hand.wait_for_default_stream();
                }
                drop(output);
                start.elapsed()
            })
            .collect();
        hand.wait_for_default_stream();
        median(&mut times)
    };
    println!(
        "ok rust_resident_net left on the stream {:.1} us, waited for {:.1} us",
        time(false),
        time(true)
    );
}

/// The seed's function without this crate: what is to be compared with `rust_seed_net`.
fn time_by_hand(hand: &ByHand) {
    for (name, mapped) in [("staged", false), ("mapped", true)] {
        let time = |as_graph| median(&mut hand.times(mapped, as_graph, RUNS));
        println!("ok by_hand_{name} eager {:.1} us, graph {:.1} us", time(false), time(true));
    }
}

/// Allocating blocks of a device arena, and resetting it.
fn time_arena() {
    const BLOCKS: usize = 64;
    let mut arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    let layouts = [256, 4096, 100_000, 64 << 10].map(|size| Layout::from_size_align(size, 256).unwrap());
    let mut round = || {
        for index in 0..BLOCKS {
            core::hint::black_box(arena.allocate(layouts[index % layouts.len()]).unwrap());
        }
        arena.reset();
    };
    round();
    let time = |_| {
        let start = Instant::now();
        (0..1000).for_each(|_| round());
        start.elapsed()
    };
    let mut times: Vec<Duration> = (0..21).map(time).collect();
    let middle = median(&mut times) * 1e3 / (1000 * BLOCKS) as f64;
    let ns = times[0].as_nanos() as f64 / (1000 * BLOCKS) as f64;
    println!(
        "{} device_arena {ns:.2} ns per block at best, {middle:.2} in the middle, allocated and reset",
        if ns <= 10.0 { "ok" } else { "FAIL" }
    );
}

fn time_copies(hand: &ByHand) {
    let layout = Layout::from_size_align(256 << 20, 256).unwrap();
    let arena = Arena::with_reserve(CudaSpace::new(0).unwrap(), 1 << 30);
    let pinned = PinnedSpace::new().unwrap();
    let (host, device) = (pinned.allocate(layout).unwrap(), arena.allocate(layout).unwrap());
    let mut pageable = vec![1_u8; 256 << 20];
    let mut queue = CudaQueue::new(0).unwrap();
    for (name, address) in [("pinned", host.address()), ("pageable", NonNull::from(&mut pageable[..]).cast())]
    {
        for size_bytes in [256, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20, 32 << 20, 256 << 20] {
            let up = Piece { target: device.address(), source: address, size_bytes };
            let down = Piece { target: address, source: device.address(), size_bytes };
            for to_host in [false, true] {
                let ours = &mut || {
                    // SAFETY: a host block and a device block of at least this size; waited for.
                    let queued =
                        unsafe { if to_host { queue.download(&[down]) } else { queue.upload(&[up]) } };
                    queued.unwrap();
                    queue.synchronize().unwrap();
                };
                let by_hand = &mut || {
                    let device = device.address().addr().get() as u64;
                    // SAFETY: as above.
                    unsafe { hand.copy(to_host, address.as_ptr(), device, size_bytes, name == "pinned") };
                };
                let runs = if size_bytes > 1 << 24 { 9 } else { 300 };
                let (mut mine, mut theirs) = (Vec::new(), Vec::new());
                let time = |copy: &mut dyn FnMut(), times: &mut Vec<Duration>| {
                    let start = Instant::now();
                    copy();
                    times.push(start.elapsed());
                };
                for _ in 0..runs {
                    time(ours, &mut mine);
                    time(by_hand, &mut theirs);
                }
                let (mine, theirs) = (median(&mut mine), median(&mut theirs));
                let rate = |us: f64| size_bytes as f64 / us / 1e3;
                println!(
                    "ok copy_{name}_{}_{size_bytes} {mine:.1} us {:.1} GB/s, by hand {theirs:.1} us {:.1} GB/s, ratio {:.2}",
                    if to_host { "down" } else { "up" },
                    rate(mine),
                    rate(theirs),
                    theirs / mine,
                );
            }
        }
    }
    drop(queue);
    // SAFETY: it came from this space, just so; every copy was waited for.
    unsafe { pinned.deallocate(host) };
}

/// Copies from one device's memory to another's.
fn time_peer_copies() {
    if absence(1).is_some() {
        println!("no second device: no copies between devices");
        return;
    }
    let layout = Layout::from_size_align(256 << 20, 256).unwrap();
    let (here, there) = (CudaSpace::new(0).unwrap(), CudaSpace::new(1).unwrap());
    let device = here.device().unwrap();
    let (here, there) = (Arena::with_reserve(here, 1 << 30), Arena::with_reserve(there, 1 << 30));
    let (source, target) = (here.allocate(layout).unwrap(), there.allocate(layout).unwrap());
    let mut queue = CudaQueue::new(1).unwrap();
    for size_bytes in [256, 64 << 10, 1 << 20, 32 << 20, 256 << 20] {
        let mut times: Vec<Duration> = (0..50)
            .map(|_| {
                let start = Instant::now();
                let piece = Piece { target: target.address(), source: source.address(), size_bytes };
                // SAFETY: blocks of at least this size, one on each device; nothing else uses them.
                unsafe { queue.copy_from_peer(piece, device) }.unwrap();
                queue.synchronize().unwrap();
                start.elapsed()
            })
            .collect();
        let us = median(&mut times);
        println!("ok copy_peer_{size_bytes} {us:.1} us {:.1} GB/s", size_bytes as f64 / us / 1e3);
    }
}

fn main() {
    if let Some(reason) = absence(0) {
        println!("nothing measured: {reason}");
        return;
    }
    let device = Device::open(0).unwrap();
    println!("{}, compute capability {:?}", device.name(), device.capability());
    let hand = ByHand::new();
    time_by_hand(&hand);
    time_arena();
    if let Some(folder) = std::env::var_os("ARENITE_CUDA_PROGRAMS") {
        for name in PROGRAMS {
            time_program(&hand, Path::new(&folder), name);
        }
        time_resident(&hand, Path::new(&folder));
    } else {
        println!("no programs measured: ARENITE_CUDA_PROGRAMS names no folder");
    }
    time_by_hand(&hand);
    time_copies(&hand);
    time_peer_copies();
}
