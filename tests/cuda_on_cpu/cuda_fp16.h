/* Halves on the CPU: cuda_runtime.h has them. */
#include "cuda_runtime.h"
