#include "hpctl/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"
#include "hpctl/shown.h"
#include "transport/data.h"
#include "transport/data_choice.h"

enum {
    WINDOW_CHUNKS = 8,
    MAX_ADDRESS_BYTES = 16384,
    STALL_S = 60 /* for one chunk of at most 4 MiB */
};

struct upload {
    const struct manifest *manifest;
    struct data_endpoint
        *endpoint; /* NULL until the first agent is named: its address says of which kind */
    enum data_kind kind;
    struct key_pair keys;
    int *files; /* by file of the manifest; -1 until opened */
    char path[4096];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int in_flight, failed;
    const char *to; /* the agent that chunks go to */
};

static void on_frame(void *ctx, const struct frame_header *h, struct data_buffer *payload)
{
    struct upload *u = ctx; /* nobody is allowed to send us anything */
    (void)h;
    data_buffer_release(u->endpoint, payload);
}

int upload_open(const char *path, const struct manifest *manifest, const struct key_pair *keys,
                struct upload **out, struct err *e)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u || !(u->files = malloc(manifest->files.count * sizeof *u->files))) {
        free(u);
        return err_no_memory(e, "an upload");
    }
    u->manifest = manifest;
    snprintf(u->path, sizeof u->path, "%s", path);
    for (size_t i = 0; i < manifest->files.count; i++)
        u->files[i] = -1;
    pthread_mutex_init(&u->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&u->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    u->keys = *keys;
    *out = u;
    return 0;
}

/* An endpoint of the kind that the agents have, at this box's address on the way to them. Agents of
 * one cluster have one kind. */
static int endpoint_open(struct upload *u, const struct data_address *to, struct err *e)
{
    char host[DATA_HOST_TEXT], interface[64];
    if (u->endpoint && u->kind == to->kind)
        return 0;
    data_close(&u->endpoint);
    int rc = data_host_find(NULL, to->host, host, e);
    if (rc < 0)
        return rc;
    struct data_config config = {
        .host = host, .keys = u->keys, .callbacks = {.ctx = u, .frame = on_frame}};
    if (data_interface_find(host, interface, sizeof interface))
        config.network = interface;
    u->kind = to->kind;
    return data_open_kind(to->kind, &config, &u->endpoint, e);
}

/* One for agents of this process. */
static int endpoint_open_within(struct upload *u, struct err *e)
{
    struct data_config config = {.keys = u->keys, .callbacks = {.ctx = u, .frame = on_frame}};
    return u->endpoint ? 0 : data_open_inproc(&config, &u->endpoint, e);
}

void upload_close(struct upload **out)
{
    struct upload *u = *out;
    *out = NULL;
    if (!u)
        return;
    data_close(&u->endpoint);
    for (size_t i = 0; i < u->manifest->files.count; i++)
        if (u->files[i] >= 0)
            close(u->files[i]);
    pthread_mutex_destroy(&u->lock);
    pthread_cond_destroy(&u->changed);
    free(u->files);
    free(u);
}

static int open_file(struct upload *u, uint64_t file, struct err *e)
{
    const struct manifest_file *f = (const struct manifest_file *)u->manifest->files.items + file;
    char path[5000];
    if (u->files[file] >= 0)
        return 0;
    const char *slash = strrchr(u->path, '/');
    if (u->manifest->folder)
        snprintf(path, sizeof path, "%s/%s", u->path, f->name);
    else /* GGUF files lie beside the first */
        snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - u->path) : 0, u->path,
                 f->name);
    u->files[file] = open(path, O_RDONLY | O_CLOEXEC);
    return u->files[file] >= 0 ? 0 : err_set(e, HP_EIO, "%s: %s", path, strerror(errno));
}

static void on_sent(void *ctx, int status)
{
    struct upload *u = ctx;
    pthread_mutex_lock(&u->lock);
    u->in_flight--;
    u->failed += status != 0;
    pthread_cond_signal(&u->changed);
    pthread_mutex_unlock(&u->lock);
}

/* Under the lock. False when no chunk has left for a minute: the agent is stopped, or takes
 * nothing. */
static bool chunk_await(struct upload *u)
{
    struct timespec until;
    int before = u->in_flight, rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(STALL_S * env_time_scale());
    while (u->in_flight == before && rc == 0)
        rc = pthread_cond_timedwait(&u->changed, &u->lock, &until);
    return rc == 0;
}

/* Waits until at most `most` chunks are under way. */
static int wait_for_room(struct upload *u, int most, struct err *e)
{
    bool moves = true;
    pthread_mutex_lock(&u->lock);
    while (u->in_flight > most && moves)
        moves = chunk_await(u);
    bool failed = u->failed > 0;
    pthread_mutex_unlock(&u->lock);
    if (!moves) {
        err_set(e, HP_ETIMEOUT, "the upload stands still: agent %s has taken no weights for %d s",
                u->to, STALL_S);
        return err_hint(
            e,
            "`hpctl node ls` shows whether all agents live; deploy again goes on where this ended");
    }
    if (!failed)
        return 0;
    err_set(e, HP_ELINK, "the upload broke off: agent %s is not reachable on the data channel",
            u->to);
    return err_hint(e, "its log says why: hpctl logs %s", u->to);
}

static int send_chunk(struct upload *u, struct data_link *link, uint64_t session,
                      const struct manifest_chunk *c, struct err *e)
{
    int rc = open_file(u, c->file, e);
    if (rc < 0 || (rc = wait_for_room(u, WINDOW_CHUNKS - 1, e)) < 0)
        return rc;
    struct data_buffer *b = data_buffer_get(u->endpoint, DIGEST_BYTES + c->bytes);
    if (!b)
        return err_no_memory(e, "a chunk");
    memcpy(b->bytes, c->digest.data, DIGEST_BYTES);
    for (uint64_t got = 0; got < c->bytes;) {
        ssize_t n = pread(u->files[c->file], b->bytes + DIGEST_BYTES + got, c->bytes - got,
                          (off_t)(c->offset + got));
        if (n <= 0) {
            data_buffer_release(u->endpoint, b);
            return err_set(e, HP_EIO, "%s: cannot read: %s", u->path,
                           n < 0 ? strerror(errno) : "the file has become shorter");
        }
        got += (uint64_t)n;
    }
    pthread_mutex_lock(&u->lock);
    u->in_flight++;
    pthread_mutex_unlock(&u->lock);
    struct frame_header h = {.kind = FRAME_CHUNK, .dtype = FRAME_BYTES, .session = session};
    data_post(link, &h, b, on_sent, u);
    return 0;
}

static int connect_target(struct upload *u, const char *hex, struct data_link **out, struct err *e)
{
    uint8_t address[MAX_ADDRESS_BYTES];
    size_t n = hex ? strlen(hex) / 2 : 0;
    for (size_t i = 0; i < n && n <= sizeof address; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            n = 0;
        else
            address[i] = (uint8_t)byte;
    }
    struct data_address to = {0};
    bool within = n > 0 && n <= DATA_INPROC_ADDRESS_BYTES;
    if (n == 0 || n > sizeof address || (!within && data_address_parse(address, n, &to, e) < 0))
        return err_set(e, HP_EPROTO, "the coordinator named an agent without a data address");
    int rc = within ? endpoint_open_within(u, e) : endpoint_open(u, &to, e);
    return rc == 0 ? data_connect(u->endpoint, address, n, out, e) : rc;
}

/* NULL: there is none of this number. */
static const struct manifest_chunk *chunk_of(const struct upload *u, const json_t *index)
{
    const struct manifest_chunk *chunks = u->manifest->chunks.items;
    json_int_t c = json_integer_value(index);
    return c >= 0 && (size_t)c < u->manifest->chunks.count ? &chunks[c] : NULL;
}

static uint64_t request_bytes(const struct upload *u, const json_t *request)
{
    uint64_t bytes = 0;
    json_t *target, *index;
    size_t i, k;
    json_array_foreach(json_object_get(request, "targets"), i, target)
    {
        json_array_foreach(json_object_get(target, "chunks"), k, index)
        {
            const struct manifest_chunk *c = chunk_of(u, index);
            bytes += c ? c->bytes : 0;
        }
    }
    return bytes;
}

/* What one request has sent so far. */
struct upload_sent {
    struct progress_bar *bar;
    uint64_t bytes, total;
};

static int target_send(struct upload *u, struct data_link *link, uint64_t session,
                       const json_t *chunks, struct upload_sent *sent, struct err *e)
{
    json_t *index;
    size_t k;
    json_array_foreach(chunks, k, index)
    {
        const struct manifest_chunk *c = chunk_of(u, index);
        if (!c)
            return err_set(e, HP_EPROTO, "the coordinator asked for chunk %lld of %zu",
                           (long long)json_integer_value(index), u->manifest->chunks.count);
        progress_show_bytes(sent->bar,
                            shown_of("uploading: %s of %s, to %s",
                                     shown_bytes((double)sent->bytes).s,
                                     shown_bytes((double)sent->total).s, u->to)
                                .s,
                            (double)sent->bytes, (double)sent->total);
        int rc = send_chunk(u, link, session, c, e);
        if (rc < 0)
            return rc;
        sent->bytes += c->bytes;
    }
    return 0;
}

int upload_send(struct upload *u, const json_t *request, struct progress_bar *bar, uint64_t *bytes,
                struct err *e)
{
    uint64_t session = (uint64_t)json_integer_value(json_object_get(request, "session"));
    struct upload_sent sent = {.bar = bar, .total = request_bytes(u, request)};
    json_t *target;
    size_t i;
    int rc = 0;
    json_array_foreach(json_object_get(request, "targets"), i, target)
    {
        struct data_link *link = NULL;
        u->to = string_member(target, "agent");
        rc = connect_target(u, json_string_value(json_object_get(target, "address")), &link, e);
        if (rc < 0)
            break;
        rc = target_send(u, link, session, json_object_get(target, "chunks"), &sent, e);
        int waited = wait_for_room(u, 0, rc < 0 ? NULL : e);
        rc = rc < 0 ? rc : waited;
        data_disconnect(&link);
        if (rc < 0)
            break;
    }
    *bytes += sent.bytes;
    return rc;
}
