/* Memory of programs that run for months. */
#ifndef HP_COMMON_HEAP_H
#define HP_COMMON_HEAP_H

enum { HEAP_LARGE_BYTES = 256 << 10 };

/* Blocks from this size on go back to the system as soon as they are freed: without that the first
 * large one that is freed moves all that follow into arenas, where what lives between them holds
 * their memory for good. Before any other thread is there. */
void heap_return_large(void);

/* Gives back what smaller blocks left free, after very many of them were freed at once. Takes
 * milliseconds. */
void heap_trim(void);

#endif
