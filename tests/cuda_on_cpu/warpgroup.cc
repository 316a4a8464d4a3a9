/* Products of warpgroups, which read shared memory and write registers at any time until they are
 * waited for: some are done at once, others only then, as the seed has it, in their order. */
#include <vector>

#include "cuda_on_cpu_int.h"

namespace cuda_on_cpu
{

struct group_product {
    float (*sums)[4];
    int columns;
    const uint8_t *a, *b; /* in shared memory; a nullptr: in registers */
    unsigned beside;
    bool add;
    float rows[2][16]; /* of a in registers, the lane's two */
    const unsigned *kept;
    unsigned was[4]; /* what `kept` had */
    int set;
    const void *pc;
};
static std::vector<group_product> products[1024];
static int sets[1024];

void products_forget(int threads)
{
    for (int i = 0; i < threads; i++) {
        products[i].clear();
        sets[i] = 0;
    }
}

/* Chunk c of row r lies at c ^ r % 8 of that row's 128 bytes, by bits of the address as hardware
 * has it. */
static const uint8_t *swizzled(const uint8_t *matrix, unsigned row, unsigned column)
{
    const uint8_t *at = matrix + row * 128 + column * 2;
    return (const uint8_t *)((uintptr_t)at ^ ((uintptr_t)at >> 7 & 7) << 4);
}

static float shared_half_at(const uint8_t *at, const void *pc)
{
    unsigned short bits;
    touch(at, sizeof bits, false, pc);
    memcpy(&bits, at, sizeof bits);
    return __half2float(__ushort_as_half(bits));
}

/* The two rows of a that a lane has sums of. */
static void rows_read(const group_product &p, float (*rows)[16])
{
    unsigned thread = (unsigned)now.thread % 128, row = thread / 32 * 16 + thread % 32 / 4;
    if (!p.a) {
        memcpy(rows, p.rows, sizeof p.rows);
        return;
    }
    for (unsigned h = 0; h < 2; h++)
        for (unsigned k = 0; k < 16; k++)
            rows[h][k] = shared_half_at(swizzled(p.a, row + h * 8, k), p.pc);
}

static void product_run(const group_product &p)
{
    float rows[2][16];
    if (p.kept && memcmp(p.kept, p.was, sizeof p.was))
        die(p.pc, "registers of a product that is under way are written");
    rows_read(p, rows);
    for (unsigned n = 0; n < (unsigned)p.columns / 8; n++)
        for (unsigned i = 0; i < 2; i++) {
            unsigned column = n * 8 + (unsigned)now.thread % 4 * 2 + i;
            float b[16];
            for (unsigned k = 0; k < 16; k++)
                b[k] = shared_half_at(p.a ? swizzled(p.b, column, k)
                                          : swizzled(p.b + column / 64 * p.beside, k, column % 64),
                                      p.pc);
            for (unsigned h = 0; h < 2; h++) {
                float sum = p.add ? p.sums[n][h * 2 + i] : 0;
                for (unsigned k = 0; k < 16; k++)
                    sum += rows[h][k] * b[k];
                p.sums[n][h * 2 + i] = sum;
            }
        }
}

static void product_add(group_product p)
{
    auto &own = products[now.thread];
    if (capability() != 90)
        die(p.pc, "a GPU of capability %d.%d has no products of warpgroups", capability() / 10,
            capability() % 10);
    if ((uintptr_t)p.b % 16 || (uintptr_t)p.a % 16)
        die(p.pc, "a matrix of a product lies at no multiple of 16");
    p.set = sets[now.thread];
    if (own.empty() && draw(2))
        product_run(p);
    else
        own.push_back(p);
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

void cuda_on_cpu_group_multiply(float (*sums)[4], int columns, const uint8_t *a, const uint8_t *b,
                                bool add)
{
    group_product p = {};
    p.sums = sums;
    p.columns = columns;
    p.a = a;
    p.b = b;
    p.add = add;
    p.pc = __builtin_return_address(0);
    product_add(p);
}

void cuda_on_cpu_group_multiply_kept(float (*sums)[4], int columns, const unsigned *a,
                                     const uint8_t *b, unsigned beside)
{
    group_product p = {};
    p.sums = sums;
    p.columns = columns;
    p.b = b;
    p.beside = beside;
    p.add = true;
    p.kept = a;
    p.pc = __builtin_return_address(0);
    memcpy(p.was, a, sizeof p.was);
    unsigned lane = cuda_on_cpu_lane(), own[4];
    memcpy(own, a, sizeof own);
    const uint64_t *given = warp_exchange(~0u, (uint64_t)own, p.pc);
    for (unsigned k = 0; k < 16; k++)
        for (unsigned h = 0; h < 2; h++) {
            const unsigned *of = (const unsigned *)given[lane / 4 * 4 + k % 8 / 2];
            p.rows[h][k] =
                __half2float(__ushort_as_half((unsigned short)(of[k / 8 * 2 + h] >> k % 2 * 16)));
        }
    warp_exchange(~0u, 0, p.pc); /* others may go on: what they gave is read */
    product_add(p);
}

void cuda_on_cpu_group_end()
{
    sets[now.thread]++;
}

void cuda_on_cpu_group_wait(int but)
{
    auto &own = products[now.thread];
    size_t done = 0;
    while (done < own.size() && own[done].set < sets[now.thread] - but)
        product_run(own[done++]);
    own.erase(own.begin(), own.begin() + (long)done);
}
