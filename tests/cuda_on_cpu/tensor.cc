/* Tensor cores: a lane reads the fragments of those that have what it needs. */
#include "cuda_on_cpu_int.h"

using namespace cuda_on_cpu;

struct tensor_fragment {
    unsigned a[4], b[2];
};

/* Of two f16 or bf16 in a register. */
static float half_of(unsigned two, unsigned which, bool bf16)
{
    if (bf16)
        return __uint_as_float(two >> which * 16 << 16);
    return __half2float(__ushort_as_half((unsigned short)(two >> which * 16)));
}

/* What all lanes of the warp have. */
static void fragments_read(const tensor_fragment &own, tensor_fragment *all, const void *pc)
{
    const uint64_t *given = warp_exchange(~0u, (uint64_t)&own, pc);
    for (int i = 0; i < 32; i++)
        all[i] = *(const tensor_fragment *)given[i];
    warp_exchange(~0u, 0, pc); /* others may go on: what they gave is read */
}

static void capability_check(int least, const void *pc)
{
    if (capability() < least)
        die(pc, "a GPU of capability %d.%d has no such tensor cores", capability() / 10,
            capability() % 10);
}

void cuda_on_cpu_tensor_multiply(float *sums, const unsigned *a, unsigned b0, unsigned b1,
                                 bool bf16)
{
    const void *pc = __builtin_return_address(0);
    unsigned lane = cuda_on_cpu_lane();
    capability_check(bf16 ? 80 : 75, pc);
    tensor_fragment all[32];
    fragments_read({{a[0], a[1], a[2], a[3]}, {b0, b1}}, all, pc);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (unsigned k = 0; k < 16; k++)
            sums[i] += half_of(all[row % 8 * 4 + k % 8 / 2].a[k / 8 * 2 + row / 8], k % 2, bf16) *
                       half_of(all[column * 4 + k % 8 / 2].b[k / 8], k % 2, bf16);
    }
}

void cuda_on_cpu_tensor_multiply_bytes(int *out, const unsigned *a, unsigned b0, unsigned b1,
                                       const int *begin, cuda_on_cpu_bytes how)
{
    const void *pc = __builtin_return_address(0);
    unsigned lane = cuda_on_cpu_lane();
    capability_check(80, pc);
    tensor_fragment all[32];
    fragments_read({{a[0], a[1], a[2], a[3]}, {b0, b1}}, all, pc);
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        int sum = begin[i];
        for (unsigned k = 0; k < how.depth; k++) {
            unsigned first = all[row % 8 * 4 + k % 16 / 4].a[k / 16 * 2 + row / 8] >> k % 4 * 8;
            sum += (how.no_sign ? (int)(uint8_t)first : (int)(int8_t)first) *
                   (int8_t)(all[column * 4 + k % 16 / 4].b[k / 16] >> k % 4 * 8);
        }
        out[i] = sum;
    }
}
