/* UCX as if it had been built with CUDA, for a library that has not: its context lists CUDA memory,
 * and what is sent from such memory and received into it goes by memory of the host's. It keeps
 * what UCX promises and no more: memory may be read and written until the operation is over, so
 * that whoever changes or frees it before is found.
 *
 * Included once, by a program or by what stands between a program and UCX's library (LD_PRELOAD),
 * which defines what is declared here. */
#ifndef HP_TESTS_UCX_DEVICE_H
#define HP_TESTS_UCX_DEVICE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

/* Copies to the device's memory or from it; not 0: it is lost. */
static int device_reach(void *host, void *device, size_t bytes, bool to_device);
/* Whether the context lists CUDA's memory. */
static bool device_is_listed(void);
/* "sent", "posted", "came", "failed", of memory of a device; "host_sent", "host_posted" else. */
static void device_note(const char *what, size_t bytes);

/* Of so many bytes of a header, how many are sent: a peer that lies sends others. */
static size_t device_header_bytes(size_t bytes);

struct device_move {
    void *host, *device;
    size_t bytes;
    ucp_request_param_t param; /* as it was asked for */
};

static bool param_is_device(const ucp_request_param_t *param)
{
    return (param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) &&
           param->memory_type == UCS_MEMORY_TYPE_CUDA;
}

static struct device_move *move_make(void *device, size_t bytes, const ucp_request_param_t *param)
{
    struct device_move *m = malloc(sizeof *m);
    void *host = malloc(bytes);
    if (!m || !host)
        abort();
    *m = (struct device_move){host, device, bytes, *param};
    return m;
}

static void move_free(struct device_move *m)
{
    free(m->host);
    free(m);
}

static ucp_request_param_t param_of(struct device_move *m)
{
    ucp_request_param_t p = m->param;
    p.op_attr_mask &= ~(uint32_t)UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    p.user_data = m;
    return p;
}

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

ucs_status_t ucp_context_query(ucp_context_h context, ucp_context_attr_t *attr)
{
    ucs_status_t (*next)(ucp_context_h, ucp_context_attr_t *) = real("ucp_context_query");
    ucs_status_t status = next(context, attr);
    if (status == UCS_OK && device_is_listed())
        attr->memory_types |= UCS_BIT(UCS_MEMORY_TYPE_CUDA);
    return status;
}

/* ---- sending ---- */

static void move_unchanged(const struct device_move *m)
{
    void *now = malloc(m->bytes);
    if (!now)
        abort();
    if (device_reach(now, m->device, m->bytes, false) == 0 && memcmp(now, m->host, m->bytes) != 0) {
        fprintf(stderr, "ucx_device: memory changed while it was being sent\n");
        abort();
    }
    free(now);
}

static void on_move_sent(void *request, ucs_status_t status, void *ctx)
{
    struct device_move *m = ctx;
    ucp_send_nbx_callback_t then = m->param.cb.send;
    void *user = m->param.user_data;
    move_unchanged(m);
    move_free(m);
    then(request, status, user);
}

typedef ucs_status_ptr_t (*send_fn)(ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,
                                    const ucp_request_param_t *);

ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header, size_t header_length,
                                 const void *buffer, size_t count, const ucp_request_param_t *param)
{
    send_fn next = (send_fn)real("ucp_am_send_nbx");
    header_length = device_header_bytes(header_length);
    if (!param_is_device(param)) {
        ucs_status_ptr_t request = next(ep, id, header, header_length, buffer, count, param);
        device_note("host_sent", count);
        return request;
    }
    struct device_move *m = move_make((void *)(uintptr_t)buffer, count, param);
    if (device_reach(m->host, m->device, count, false) != 0) {
        move_free(m);
        return UCS_STATUS_PTR(UCS_ERR_IO_ERROR);
    }
    ucp_request_param_t p = param_of(m);
    p.cb.send = on_move_sent;
    ucs_status_ptr_t request = next(ep, id, header, header_length, m->host, count, &p);
    if (!UCS_PTR_IS_PTR(request))
        move_free(m);
    device_note("sent", count);
    return request;
}

/* ---- receiving ---- */

/* UCX may have written as much as it likes, also where it failed. */
static ucs_status_t move_land(struct device_move *m, ucs_status_t status)
{
    bool reached = device_reach(m->host, m->device, m->bytes, true) == 0;
    status = status == UCS_OK && !reached ? UCS_ERR_IO_ERROR : status;
    device_note(status == UCS_OK ? "came" : "failed", m->bytes);
    move_free(m);
    return status;
}

static void on_move_came(void *request, ucs_status_t status, size_t length, void *ctx)
{
    struct device_move *m = ctx;
    ucp_am_recv_data_nbx_callback_t then = m->param.cb.recv_am;
    void *user = m->param.user_data;
    then(request, move_land(m, status), length, user);
}

ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *descriptor, void *buffer,
                                      size_t count, const ucp_request_param_t *param)
{
    ucs_status_ptr_t (*next)(ucp_worker_h, void *, void *, size_t, const ucp_request_param_t *) =
        real("ucp_am_recv_data_nbx");
    if (!param_is_device(param)) {
        device_note("host_posted", count);
        return next(worker, descriptor, buffer, count, param);
    }
    struct device_move *m = move_make(buffer, count, param);
    memset(m->host, 0xa5, count);
    device_note("posted", count);
    ucp_request_param_t p = param_of(m);
    p.cb.recv_am = on_move_came;
    ucs_status_ptr_t request = next(worker, descriptor, m->host, count, &p);
    if (!UCS_PTR_IS_PTR(request))
        return UCS_STATUS_PTR(move_land(m, UCS_PTR_STATUS(request)));
    return request;
}

#endif
