/* Mixtures of experts on the cuda backend: the tests of the other backends' operators. */
#include "tests/unit/agent/backend/cuda_fixture.h"

/* One device, where the others have a list. */
static struct device *cuda_of_list(int i)
{
    return i == 0 ? cuda_open(0) : NULL;
}
#define op_device(i) cuda_of_list(i)
#include "tests/unit/agent/backend/experts_test.c"
