/* NumPy's .npz: any bytes; every element of every array that is accepted is read. */
#include "model/files/npz.h"

static volatile double touched;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npz z = {0};
    struct err e = {0};
    if (npz_parse("f.npz", data, size, &z, &e) == 0)
        for (int i = 0; i < z.n_arrays; i++)
            for (int64_t k = 0; k < z.arrays[i].array.count; k++)
                touched = ndarray_f64(&z.arrays[i].array, k);
    npz_free(&z);
    return 0;
}
