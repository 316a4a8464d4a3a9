/* What the plugin asks of CUDA's runtime, for C: devices, memory, copies, streams, events.
 * Functions return 0 or the number of CUDA's error, which gpu_error_text puts in words. Addresses
 * of the device are for kernels and copies alone. Any thread; gpu_use says which device the calling
 * thread means. */
#ifndef HP_AGENT_BACKEND_CUDA_GPU_H
#define HP_AGENT_BACKEND_CUDA_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* as CUDA's headers call them */
struct CUevent_st;
struct CUgraphExec_st;

enum {
    GPU_NAME = 128,
    GPU_NO_MEMORY = 2,
    GPU_NO_DEVICE = 101,
    GPU_BUSY = 600,
    GPU_NO_PARTS = 801,
    GPU_LOST = 999,
};
struct gpu_facts {
    char name[GPU_NAME]; /* "NVIDIA H100 80GB HBM3" */
    uint64_t total_bytes, free_bytes;
    int major, minor, multiprocessors; /* major.minor: the compute capability */
    uint32_t shared_bytes;             /* memory of a multiprocessor that its blocks share */
};

const char *gpu_error_text(int code);
/* As CUDA counts: 12040 is 12.4. The driver's is 0 where there is none. */
int gpu_versions(int *driver, int *runtime);
int gpu_count(int *n);
int gpu_use(int ordinal);
/* Whether kernels of the device in use may begin before those that they wait for are over. */
bool gpu_overlaps_launches(void);
/* Of the device in use, which is `ordinal`. */
int gpu_facts_read(int ordinal, struct gpu_facts *out);

/* Parts of a GPU, by green contexts of its driver: equal ones that share no multiprocessor. */
enum { GPU_CUT_MOST = 12 };
struct gpu_part;
struct gpu_part_facts {
    int all, each, least; /* multiprocessors: of the GPU, of a part, that a part may have */
};
/* What parts there are when it is cut into so many; uses no GPU. `each` 0: they would have fewer
 * than `least`. GPU_NO_PARTS: the driver makes none. */
int gpu_part_facts_read(int ordinal, int cut, struct gpu_part_facts *out);
/* `count` of these parts, from `first` on. */
int gpu_part_open(int ordinal, int cut, int first, int count, struct gpu_part **out);
/* Its streams are gone. */
void gpu_part_close(struct gpu_part *p);
int gpu_part_stream_create(struct gpu_part *p, struct CUstream_st **out);

int gpu_alloc(void **out, size_t bytes);
int gpu_free(void *p);
/* Memory that is given out in parts: byte i of it lies at i times *stretch. The stand-in minds what
 * is given out: nothing else may be touched, and between parts it has bytes of nobody's. */
int gpu_arena_create(void **out, size_t bytes, size_t *stretch);
int gpu_arena_take(void *p, size_t bytes);
void gpu_arena_give(void *p, size_t bytes);
/* Memory of the host that copies read and write without a detour. */
int gpu_host_alloc(void **out, size_t bytes);
int gpu_host_free(void *p);

int gpu_stream_create(struct CUstream_st **out);
int gpu_stream_destroy(struct CUstream_st *s);
int gpu_stream_wait(struct CUstream_st *s);
int gpu_event_create(struct CUevent_st **out);
int gpu_event_destroy(struct CUevent_st *v);
int gpu_event_record(struct CUevent_st *v, struct CUstream_st *s);
int gpu_event_wait(struct CUevent_st *v);
int gpu_event_done(struct CUevent_st *v); /* GPU_BUSY: not yet */
/* An event that knows when it was, and seconds from one such to another; GPU_BUSY: one is not yet.
 */
int gpu_moment_create(struct CUevent_st **out);
int gpu_moments_between(struct CUevent_st *from, struct CUevent_st *to, double *seconds);

/* What this thread puts on the stream from now on is kept and not done; nothing may be waited for
 * or allocated meanwhile. */
int gpu_keep_begin(struct CUstream_st *s);
/* All that was kept, made ready to be started as one. The stream is as before, also on failure. */
int gpu_keep_end(struct CUstream_st *s, struct CUgraphExec_st **out);
int gpu_kept_start(struct CUgraphExec_st *g, struct CUstream_st *s);
int gpu_kept_free(struct CUgraphExec_st *g);

enum gpu_way { GPU_TO_DEVICE, GPU_TO_HOST, GPU_WITHIN };
/* `rows` runs of `bytes`, whose beginnings lie so far apart. */
int gpu_copy(struct CUstream_st *s, enum gpu_way way, void *to, size_t to_pitch, const void *from,
             size_t from_pitch, size_t bytes, size_t rows);
int gpu_zero(struct CUstream_st *s, void *p, size_t bytes);
/* The first failure of launches since the last call. */
int gpu_launched(void);

#ifdef __cplusplus
}
#endif

#endif
