// Copies between ranges that the device reaches: its own memory, and pinned memory of the host. Both start at a
// multiple of 16 bytes; a thread copies 16 bytes, or one of the last ones.
//
// copy.fatbin is made of this file by CUDA 13.0, for all devices that run it without being compiled again:
//   nvcc -fatbin -O3 --compress-mode=size $(for sm in 75 80 90 100 120; do
//     echo -gencode arch=compute_$sm,code=sm_$sm; done) -o copy.fatbin copy.cu
extern "C" __global__ void arenite_copy(uint4 *to, const uint4 *from, unsigned long long size_bytes) {
    unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long whole = size_bytes / 16;
    if (thread < whole) {
        to[thread] = from[thread];
    } else if (thread - whole < size_bytes % 16) {
        unsigned long long last = whole * 16 + (thread - whole);
        ((unsigned char *)to)[last] = ((const unsigned char *)from)[last];
    }
}
