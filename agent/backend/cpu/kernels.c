/* Chooses the table of kernels by what the CPU says it can do. */
#include "agent/backend/cpu/kernels.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

#include "agent/backend/cpu/amx.h"
#include "agent/backend/cpu/cpu.h"

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* AVX-VNNI stands in a leaf of CPUID that compilers do not all know by name. */
static bool has_avx_vnni(void)
{
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

static bool has_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

static bool has_amx(void)
{
    return has_bf16() && amx_is_usable();
}

static bool prefers_amx(void)
{
    return has_amx() && amx_gain() >= AMX_LEAST_GAIN;
}

int kernels_choose(const char *name, const struct cpu_kernels **out, struct err *e)
{
    const struct {
        const struct cpu_kernels *kernels;
        bool (*usable)(void);
    } levels[] = {{&kernels_amx, name ? has_amx : prefers_amx},
                  {&kernels_avx512_bf16, has_bf16},
                  {&kernels_avx512, has_avx512},
                  {&kernels_avx_vnni, has_avx_vnni},
                  {&kernels_avx2, has_avx2}};
    __builtin_cpu_init();
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (name && strcmp(name, levels[i].kernels->name) != 0)
            continue;
        if (levels[i].usable()) {
            *out = levels[i].kernels;
            return 0;
        }
        if (name)
            return err_set(e, HP_EDEVICE, "this CPU cannot run the %s kernels", name);
    }
    if (!name)
        return err_set(e, HP_EDEVICE, "this CPU has neither AVX2 nor AVX-512");
    err_set(e, HP_EINVAL, "there are no kernels \"%s\"", name);
    return err_hint(e, "there are plain, avx2, avx_vnni, avx512, avx512_bf16 and amx");
}

void kernels_features(char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    __builtin_cpu_init();
#define SAY(feature)                                                                               \
    if (__builtin_cpu_supports(feature) && n < size)                                               \
    n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", feature)
    SAY("avx2");
    SAY("fma");
    if (has_avx_vnni() && n < size)
        n += (size_t)snprintf(out + n, size - n, " avx_vnni");
    SAY("avx512f");
    SAY("avx512bw");
    SAY("avx512vl");
    SAY("avx512dq");
    SAY("avx512vnni");
    SAY("avx512bf16");
#undef SAY
    if (has_amx() && n < size)
        snprintf(out + n, size - n, " amx_int8");
}

bool cpu_is_usable(void)
{
    __builtin_cpu_init();
    return has_avx2();
}
