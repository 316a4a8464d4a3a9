/* What bench/gpu.sh leaves out: its programs have no cpu backend. */
#include "agent/backend/cpu/cpu.h"

const struct backend cpu_backend = {.name = "cpu"};

bool cpu_is_usable(void)
{
    return false;
}
