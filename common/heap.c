#include "common/heap.h"

#include <malloc.h>

void heap_return_large(void)
{
#ifdef M_MMAP_THRESHOLD /* other libraries than glibc do so anyway, or cannot be asked to */
    mallopt(M_MMAP_THRESHOLD, HEAP_LARGE_BYTES);
#endif
}

void heap_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
