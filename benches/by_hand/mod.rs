//! The same work issued by hand through the driver: what a run and a copy cost without this crate.
//!
//! ```text
//!   staged   one copy of both inputs, kernel, one copy of the output, synchronize
//!   mapped   the kernel reads and writes pinned memory itself, synchronize        each also as a graph
//! ```
//!
//! Deliberately absent: errors. A call that fails ends the bench.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;
use cudarc::driver::sys::{
    self, CUdeviceptr, CUfunction, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode,
};
use std::time::{Duration, Instant};

/// `relu(x * y + x) * 2` over 64 numbers: the function of the seed program.
const KERNEL: &CStr = c".version 6.0
.target sm_50
.address_size 64
.visible .entry seed(.param .u64 px, .param .u64 py, .param .u64 pz)
{
  .reg .b32 %r<2>; .reg .b64 %a<8>; .reg .f32 %f<6>;
  ld.param.u64 %a0, [px]; ld.param.u64 %a1, [py]; ld.param.u64 %a2, [pz];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %a3, %r0, 4;
  add.s64 %a4, %a0, %a3; add.s64 %a5, %a1, %a3; add.s64 %a6, %a2, %a3;
  ld.global.f32 %f0, [%a4]; ld.global.f32 %f1, [%a5];
  fma.rn.f32 %f2, %f0, %f1, %f0;
  max.f32 %f3, %f2, 0f00000000;
  add.f32 %f4, %f3, %f3;
  st.global.f32 [%a6], %f4;
  ret;
}
";

const BYTES: usize = 256;

fn done(status: CUresult) {
    assert_eq!(status, CUresult::CUDA_SUCCESS, "the driver");
}

/// A stream, memory and the kernel, on the current device.
pub struct ByHand {
    stream: CUstream,
    kernel: CUfunction,
    device: CUdeviceptr,
    pinned: *mut u8,
}

impl ByHand {
    /// On device 0, whose context must have been opened.
    pub fn new() -> Self {
        let (mut device, mut context) = (0, null_mut());
        let (mut stream, mut module, mut kernel) = (null_mut(), null_mut(), null_mut());
        let (mut memory, mut pinned) = (0, null_mut());
        // SAFETY: the driver's manual: places for results, a text of code, a name in it.
        unsafe {
            done(sys::cuInit(0));
            done(sys::cuDeviceGet(&raw mut device, 0));
            done(sys::cuDevicePrimaryCtxRetain(&raw mut context, device));
            done(sys::cuCtxSetCurrent(context));
            done(sys::cuStreamCreate(&raw mut stream, 1));
            done(sys::cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()));
            done(sys::cuModuleGetFunction(&raw mut kernel, module, c"seed".as_ptr()));
            done(sys::cuMemAlloc_v2(&raw mut memory, 4096));
            done(sys::cuMemHostAlloc(&raw mut pinned, 4096, 3));
        }
        Self { stream, kernel, device: memory, pinned: pinned.cast() }
    }

    fn launch(&self, base: CUdeviceptr) {
        let mut places = [base, base + BYTES as u64, base + 2 * BYTES as u64];
        let mut arguments = places.each_mut().map(|place| core::ptr::from_mut(place).cast::<c_void>());
        // SAFETY: three addresses of 256 bytes each that the device reaches.
        done(unsafe {
            sys::cuLaunchKernel(
                self.kernel,
                1,
                1,
                1,
                64,
                1,
                1,
                0,
                self.stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        });
    }

    fn issue(&self, mapped: bool) {
        if mapped {
            return self.launch(self.pinned.addr() as u64);
        }
        // SAFETY: 512 and 256 bytes of memory of 4096.
        unsafe {
            done(sys::cuMemcpyHtoDAsync_v2(self.device, self.pinned.cast(), 2 * BYTES, self.stream));
        }
        self.launch(self.device);
        // SAFETY: as above.
        unsafe {
            let (to, from) = (self.pinned.add(2 * BYTES).cast(), self.device + 2 * BYTES as u64);
            done(sys::cuMemcpyDtoHAsync_v2(to, from, BYTES, self.stream));
        }
    }

    fn wait(&self) {
        // SAFETY: a live stream.
        done(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// Waits for the default stream.
    #[expect(clippy::unused_self, reason = "the context is current once this exists")]
    pub fn wait_for_default_stream(&self) {
        // SAFETY: the default stream is always there.
        done(unsafe { sys::cuStreamSynchronize(null_mut()) });
    }

    fn graph(&self, mapped: bool) -> CUgraphExec {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live stream that does not capture.
        done(unsafe { sys::cuStreamBeginCapture_v2(self.stream, mode) });
        self.issue(mapped);
        // SAFETY: a stream that captures, places for the results.
        unsafe {
            done(sys::cuStreamEndCapture(self.stream, &raw mut graph));
            done(sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        }
        executable
    }

    /// The time of one run with both inputs written and the output read, as a list.
    pub fn times(&self, mapped: bool, as_graph: bool, runs: usize) -> Vec<Duration> {
        let graph = as_graph.then(|| self.graph(mapped));
        let (input, mut output) = ([1.0_f32; 2 * BYTES / 4], [0.0_f32; BYTES / 4]);
        let mut run = || {
            // SAFETY: 512 bytes of a block of 4096 that no work uses now.
            unsafe { self.pinned.copy_from_nonoverlapping(input.as_ptr().cast(), 2 * BYTES) };
            match graph {
                // SAFETY: a live graph and a live stream.
                Some(graph) => done(unsafe { sys::cuGraphLaunch(graph, self.stream) }),
                None => self.issue(mapped),
            }
            self.wait();
            // SAFETY: 256 bytes of the block, written by now.
            unsafe {
                self.pinned.add(2 * BYTES).copy_to_nonoverlapping(output.as_mut_ptr().cast(), BYTES);
            }
        };
        (0..100).for_each(|_| run());
        let time = |_| {
            let start = Instant::now();
            run();
            start.elapsed()
        };
        let times = (0..runs).map(time).collect();
        assert!(output.iter().all(|value| (value - 4.0).abs() < 1e-6), "the kernel's answer");
        times
    }

    /// The median time on the device of what `work` queues on the stream that it is told, in microseconds.
    pub fn device_time(&self, runs: usize, mut work: impl FnMut(usize)) -> f32 {
        let (mut start, mut end) = (null_mut(), null_mut());
        // SAFETY: places for the results.
        unsafe {
            done(sys::cuEventCreate(&raw mut start, 0));
            done(sys::cuEventCreate(&raw mut end, 0));
        }
        let mut times: Vec<f32> = (0..runs)
            .map(|_| {
                let mut ms = 0.0;
                // SAFETY: live events and a live stream.
                done(unsafe { sys::cuEventRecord(start, self.stream) });
                work(self.stream.expose_provenance());
                // SAFETY: as above; a place for the result.
                unsafe {
                    done(sys::cuEventRecord(end, self.stream));
                    done(sys::cuEventSynchronize(end));
                    done(sys::cuEventElapsedTime_v2(&raw mut ms, start, end));
                }
                ms * 1e3
            })
            .collect();
        times.sort_unstable_by(f32::total_cmp);
        times[runs / 2]
    }

    /// The time of one copy between a device and a host address, by the driver alone: the asynchronous call
    /// where the host's side is pinned, else the plain one.
    ///
    /// # Safety
    /// * Both are valid for `size_bytes`.
    pub unsafe fn copy(&self, to_host: bool, host: *mut u8, device: u64, size_bytes: usize, pinned: bool) {
        // SAFETY: valid ranges, by the caller; a live stream.
        let status = unsafe {
            match (to_host, pinned) {
                (false, true) => sys::cuMemcpyHtoDAsync_v2(device, host.cast(), size_bytes, self.stream),
                (true, true) => sys::cuMemcpyDtoHAsync_v2(host.cast(), device, size_bytes, self.stream),
                (false, false) => sys::cuMemcpyHtoD_v2(device, host.cast(), size_bytes),
                (true, false) => sys::cuMemcpyDtoH_v2(host.cast(), device, size_bytes),
            }
        };
        done(status);
        // The plain call returns when the bytes are staged, not when they arrived.
        // SAFETY: a context is current.
        done(unsafe { if pinned { sys::cuStreamSynchronize(self.stream) } else { sys::cuCtxSynchronize() } });
    }
}
