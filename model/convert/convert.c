/* The file: beside its name, by several threads, checked, and renamed. */
#include "model/convert/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/fs.h"
#include "model/convert/beside.h"
#include "model/convert/convert_int.h"

enum { CONVERT_THREADS_MAX = 256, TICK_MS = 100 };

/* ---- rows, by several threads ---- */

struct convert_run {
    const struct convert_list *list;
    uint64_t *first_chunk; /* [n + 1]: of each tensor, counted over all */
    uint64_t data_offset;
    int fd;
    const char *path; /* for messages */
    atomic_ullong next_chunk, done_bytes;
    atomic_bool stop;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ended;
    int running, rc;
    struct err failure;
};

static void run_fail(struct convert_run *r, int rc, const struct err *e)
{
    pthread_mutex_lock(&r->lock);
    if (r->rc == 0) {
        r->rc = rc;
        r->failure = *e;
    }
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stop, true);
}

static int bytes_write(const struct convert_run *r, uint64_t at, const uint8_t *data, uint64_t n,
                       struct err *e)
{
    while (n > 0) {
        ssize_t some = pwrite(r->fd, data, (size_t)n, (off_t)at);
        if (some < 0 && errno == EINTR)
            continue;
        if (some < 0)
            return fs_error(r->path, "write", e);
        at += (uint64_t)some;
        data += some;
        n -= (uint64_t)some;
    }
    return 0;
}

static const struct convert_tensor *chunk_tensor(const struct convert_run *r, uint64_t chunk,
                                                 uint64_t *in_tensor)
{
    int low = 0, high = r->list->n;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (r->first_chunk[middle] <= chunk)
            low = middle;
        else
            high = middle;
    }
    *in_tensor = chunk - r->first_chunk[low];
    return &r->list->tensors[low];
}

static uint64_t tensor_rows(const struct convert_tensor *t)
{
    uint64_t rows = 1;
    for (int d = 0; d < t->n_dims - 1; d++)
        rows *= t->shape[d];
    return rows;
}

static int chunk_convert(struct convert_run *r, uint64_t chunk, struct convert_scratch *s,
                         struct err *e)
{
    uint64_t number;
    const struct convert_tensor *t = chunk_tensor(r, chunk, &number);
    uint64_t rows = tensor_rows(t), per_chunk = convert_chunk_rows(t), first = number * per_chunk,
             n = rows - first < per_chunk ? rows - first : per_chunk, row_bytes = t->bytes / rows;
    int rc = convert_rows(t, first, n, s, e);
    rc = rc < 0 ? rc
                : bytes_write(r, r->data_offset + t->offset + first * row_bytes, s->blocks,
                              n * row_bytes, e);
    atomic_fetch_add(&r->done_bytes, n * row_bytes);
    return rc;
}

static void *thread_run(void *arg)
{
    struct convert_run *r = arg;
    struct convert_scratch s;
    struct err e = {0};
    uint64_t end = r->first_chunk[r->list->n];
    int rc = convert_scratch_alloc(&s, r->list, &e);
    while (rc == 0 && !atomic_load(&r->stop)) {
        uint64_t chunk = atomic_fetch_add(&r->next_chunk, 1);
        if (chunk >= end)
            break;
        rc = chunk_convert(r, chunk, &s, &e);
    }
    convert_scratch_free(&s);
    if (rc < 0)
        run_fail(r, rc, &e);
    pthread_mutex_lock(&r->lock);
    r->running--;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static const struct err stopped = {.code = HP_ECANCELED, .text = "converting was stopped"};

/* Shows progress until all threads have ended. */
static void run_watch(struct convert_run *r, const struct convert_options *o, uint64_t total)
{
    pthread_mutex_lock(&r->lock);
    while (r->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&r->ended, &r->lock, &until);
        pthread_mutex_unlock(&r->lock);
        if (o->progress && o->progress(o->progress_ctx, atomic_load(&r->done_bytes), total) != 0)
            run_fail(r, HP_ECANCELED, &stopped);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
}

static int run_threads(struct convert_run *r, const struct convert_options *o, uint64_t total,
                       struct err *e)
{
    pthread_t threads[CONVERT_THREADS_MAX];
    int n = o->threads < 1                     ? 1
            : o->threads > CONVERT_THREADS_MAX ? CONVERT_THREADS_MAX
                                               : o->threads,
        started = 0;
    r->running = n;
    /* Threads may have done it all before anybody watches them. */
    if (o->progress && o->progress(o->progress_ctx, 0, total) != 0) {
        err_set(e, stopped.code, "%s", stopped.text);
        return stopped.code;
    }
    while (started < n && pthread_create(&threads[started], NULL, thread_run, r) == 0)
        started++;
    pthread_mutex_lock(&r->lock);
    r->running -= n - started;
    pthread_mutex_unlock(&r->lock);
    if (started == 0)
        return err_set(e, HP_ENOMEM, "no thread to convert with: %s", strerror(errno));
    run_watch(r, o, total);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (r->rc < 0 && e)
        *e = r->failure;
    return r->rc;
}

/* ---- the file ---- */

struct convert_file {
    struct model *model;
    const char *path;
    struct beside beside;
    struct arena arena;
    struct convert_list list;
    struct gguf_header header;
    struct buffer head;
    struct convert_result *result;
};

/* Whether a file is one of the model's own. */
static bool is_own(const struct model *m, const struct stat *out)
{
    struct stat s;
    char path[PATH_MAX];
    const char *slash = strrchr(m->path, '/');
    for (int i = 0; i < m->n_files; i++) {
        if (m->form == FORM_HUB)
            snprintf(path, sizeof path, "%s/%s", m->path, m->files[i].name);
        else
            snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - m->path) : 0, m->path,
                     m->files[i].name);
        if (stat(path, &s) == 0 && s.st_dev == out->st_dev && s.st_ino == out->st_ino)
            return true;
    }
    return false;
}

static int place_check(const struct convert_file *f, bool overwrite, struct err *e)
{
    struct stat s;
    if (stat(f->path, &s) != 0)
        return 0;
    if (S_ISDIR(s.st_mode))
        return err_set(e, HP_EINVAL, "%s: is a folder; the new model is one file, such as %s.gguf",
                       f->path, f->path);
    if (!S_ISREG(s.st_mode))
        return err_set(e, HP_EINVAL, "%s: not a regular file", f->path);
    if (is_own(f->model, &s))
        return err_set(e, HP_EINVAL, "%s: is a file of the model that is read; choose another name",
                       f->path);
    if (overwrite)
        return 0;
    return err_set(e, HP_EEXIST, "%s: is there already", f->path);
}

static int room_check(const struct convert_file *f, uint64_t bytes, struct err *e)
{
    struct statvfs s;
    int rc = posix_fallocate(f->beside.fd, 0, (off_t)bytes);
    if (rc != ENOSPC && rc != EFBIG && rc != EDQUOT)
        return 0; /* the writes will say the rest */
    uint64_t free_bytes = fstatvfs(f->beside.fd, &s) == 0 ? (uint64_t)s.f_bavail * s.f_frsize : 0;
    if (rc != ENOSPC)
        return err_set(e, HP_ENOSPACE, "%s: the file takes %llu bytes: %s", f->path,
                       (unsigned long long)bytes, strerror(rc));
    return err_set(e, HP_ENOSPACE, "%s: the file takes %llu bytes, and the disk has %llu free",
                   f->path, (unsigned long long)bytes, (unsigned long long)free_bytes);
}

/* Keys, formats and places: all of the header. */
static int header_make(struct convert_file *f, const struct convert_type *type, struct err *e)
{
    int rc = convert_list_make(f->model, &f->list, e);
    rc = rc < 0 ? rc : convert_mix(f->model, type, &f->list, f->result, e);
    rc = rc < 0 ? rc : convert_keys(f->model, type, &f->header, e);
    for (int i = 0; i < f->list.n && rc == 0; i++) {
        struct convert_tensor *t = &f->list.tensors[i];
        const struct dtype_info *info = dtype_info(t->dtype);
        t->bytes =
            tensor_rows(t) * (t->shape[t->n_dims - 1] / info->block_elements * info->block_bytes);
        t->offset = gguf_put_tensor(&f->header, t->name, t->n_dims, t->shape, t->dtype, t->bytes);
        f->result->count[t->dtype]++;
        f->result->format_bytes[t->dtype] += t->bytes;
    }
    return rc < 0 ? rc : gguf_header_finish(&f->header, &f->head, e);
}

static int data_write(struct convert_file *f, const struct convert_options *o, struct err *e)
{
    struct convert_run r = {.list = &f->list,
                            .data_offset = f->head.size,
                            .fd = f->beside.fd,
                            .path = f->path,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .ended = PTHREAD_COND_INITIALIZER};
    uint64_t chunks = 0, total = 0;
    r.first_chunk = calloc((size_t)f->list.n + 1, sizeof *r.first_chunk);
    if (!r.first_chunk)
        return err_no_memory(e, "%d tensors", f->list.n);
    for (int i = 0; i < f->list.n; i++) {
        uint64_t per_chunk = convert_chunk_rows(&f->list.tensors[i]);
        r.first_chunk[i] = chunks;
        chunks += (tensor_rows(&f->list.tensors[i]) + per_chunk - 1) / per_chunk;
        total += f->list.tensors[i].bytes;
    }
    r.first_chunk[f->list.n] = chunks;
    int rc = bytes_write(&r, 0, f->head.data, f->head.size, e);
    rc = rc < 0 ? rc : run_threads(&r, o, total, e);
    free(r.first_chunk);
    pthread_mutex_destroy(&r.lock);
    pthread_cond_destroy(&r.ended);
    return rc;
}

/* What was written opens, with the same sizes. */
static int file_check(struct convert_file *f, struct err *e)
{
    struct model *made;
    struct err problem = {0};
    const struct model_config *a = model_config(f->model), *b;
    int rc = model_open(f->beside.path, &made, &problem);
    if (rc < 0)
        return err_set(e, rc == HP_ENOMEM ? rc : HP_EBUG,
                       "the file that was made does not open: %s", problem.text);
    b = model_config(made);
    bool same = a->vocabulary == b->vocabulary && a->width == b->width &&
                a->n_blocks == b->n_blocks && a->n_heads == b->n_heads &&
                a->head_dim == b->head_dim && a->mlp_width == b->mlp_width &&
                a->context == b->context && a->experts.n == b->experts.n;
    rc = same && f->model->form == FORM_HUB ? convert_tokens_check(f->model, made, e) : 0;
    model_close(&made);
    if (rc < 0)
        return rc;
    return same ? 0 : err_set(e, HP_EBUG, "the file that was made has other sizes than the model");
}

static int file_make(struct convert_file *f, const struct convert_type *type,
                     const struct convert_options *o, struct err *e)
{
    int rc = place_check(f, o->overwrite, e);
    if (rc == HP_EEXIST)
        err_hint(e, "--overwrite replaces it once the new one is whole");
    rc = rc < 0 ? rc : header_make(f, type, e);
    rc = rc < 0 ? rc : beside_open(&f->beside, f->path, e);
    if (rc < 0)
        return rc;
    f->result->bytes = f->head.size + f->header.data_bytes;
    rc = room_check(f, f->result->bytes, e);
    if (rc == 0 && ftruncate(f->beside.fd, (off_t)f->result->bytes) != 0)
        rc = fs_error(f->path, "write", e);
    rc = rc < 0 ? rc : data_write(f, o, e);
    int unread = model_check(f->model, e);
    rc = unread < 0 ? unread : rc;
    rc = rc < 0 ? rc : file_check(f, e);
    rc = rc < 0 ? rc : beside_publish(&f->beside, f->path, e);
    beside_discard(&f->beside);
    return rc;
}

int model_convert(struct model *m, const char *out, const struct convert_options *o,
                  struct convert_result *result, struct err *e)
{
    const struct convert_type *type = convert_type_find(o->type);
    char known[256];
    *result = (struct convert_result){0};
    if (!type)
        return err_set(e, HP_EINVAL, "there is no type \"%.32s\"; known are %s", o->type,
                       convert_types(known, sizeof known));
    struct convert_file *f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(e, "a conversion");
    f->model = m;
    f->path = out;
    f->result = result;
    f->list.arena = &f->arena;
    int rc = file_make(f, type, o, e);
    gguf_header_free(&f->header);
    buffer_free(&f->head);
    arena_free(&f->arena);
    free(f);
    if (rc < 0)
        convert_result_free(result);
    return rc;
}
