/* What stands below an endpoint: the guard, and behind it UCX's context, worker and listener. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/env.h"
#include "common/log.h"
#include "transport/data_ucx_int.h"

/* On the guard's thread. */
static void on_refused(void *ctx, const char *from, const char *why)
{
    struct ucx_endpoint *d = ctx;
    data_stranger_refused(&d->base, env_now_ns(&env_real), from, why);
}

static bool key_is_allowed(void *ctx, const uint8_t key[KEY_BYTES])
{
    return data_peer_is_allowed(ctx, key);
}

/* Settings of ours, which the user's environment overrules (UCX_TLS=... names transports that no
 * guard stands before). */
static void setting_set(ucp_config_t *config, const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "UCX_%s", name);
    if (!getenv(variable))
        ucp_config_modify(config, name, value);
}

/* UCX knows memory of GPUs where its transports do, which the user names: "tcp,cuda_copy". */
static bool environment_has_cuda(void)
{
    const char *transports = getenv("UCX_TLS");
    return transports && strstr(transports, "cuda");
}

static void memory_kinds_find(struct ucx_endpoint *d, enum memory_kind wanted)
{
    ucp_context_attr_t has = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    d->base.takes[MEMORY_CUDA] = wanted == MEMORY_CUDA && d->splits &&
                                 ucp_context_query(d->context, &has) == UCS_OK &&
                                 (has.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA));
}

static ucs_status_t context_open(struct ucx_endpoint *d, const char *network)
{
    ucp_config_t *config;
    ucs_status_t s = ucp_config_read(NULL, NULL, &config);
    if (s != UCS_OK)
        return s;
    setting_set(config, "TLS", "tcp");
    setting_set(config, "SOCKADDR_TLS_PRIORITY", "tcp");
    if (!environment_has_cuda()) /* else UCX says how, which differs by whose memory it is */
        setting_set(config, "RNDV_SCHEME", "put_zcopy"); /* straight into the receiver's buffer */
    setting_set(config, "RNDV_THRESH",
                "65536"); /* what is larger waits at its sender for room: see DATA_CONTROL_BYTES */
    s = ucp_config_modify(config, "NET_DEVICES", network);
    ucp_params_t p = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "hodgepodge",
    };
    if (s == UCS_OK)
        s = ucp_init(&p, config, &d->context);
    ucp_config_release(config);
    return s;
}

static ucs_status_t worker_open(struct ucx_endpoint *d, ucp_am_recv_callback_t on_message)
{
    ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                             .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = on_message,
        .arg = d,
    };
    ucs_status_t s = ucp_worker_create(d->context, &p, &d->worker);
    s = s == UCS_OK ? ucp_worker_set_am_recv_handler(d->worker, &handler) : s;
    ucp_worker_attr_t has = {.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER};
    d->splits = s == UCS_OK && ucp_worker_query(d->worker, &has) == UCS_OK &&
                has.max_am_header >= FRAME_HEADER_BYTES + DATA_HEAD_BYTES;
    return s == UCS_OK ? ucp_worker_get_efd(d->worker, &d->wake_fd) : s;
}

/* Listens at `own`, and fills in the port. */
static ucs_status_t listener_open(struct ucx_endpoint *d, ucp_listener_conn_callback_t on_request,
                                  struct data_address *own)
{
    struct sockaddr_storage sa;
    socklen_t size = ucx_socket_address(own, &sa);
    ucp_listener_params_t p = {
        .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
        .sockaddr = {(struct sockaddr *)&sa, size},
        .conn_handler = {on_request, d},
    };
    ucp_listener_attr_t attributes = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
    ucs_status_t s = ucp_listener_create(d->worker, &p, &d->listener);
    s = s == UCS_OK ? ucp_listener_query(d->listener, &attributes) : s;
    if (s == UCS_OK)
        own->port = ntohs(((const struct sockaddr_in *)(const void *)&attributes.sockaddr)
                              ->sin_port); /* in the same place for IPv6 */
    return s;
}

static int stack_open_failed(const struct ucx_endpoint *d, struct err *e, ucs_status_t s,
                             const char *network, const struct data_address *own)
{
    int listen_error = ucx_guard_listen_error(d->guard);
    if (s == UCS_ERR_NO_MEMORY || listen_error == ENOMEM)
        return err_set(e, HP_ENOMEM, "out of memory for a data endpoint");
    if (s == UCS_ERR_BUSY || listen_error == EADDRINUSE)
        return err_set(e, HP_EBUSY,
                       "port %u or %u of %s is taken: the data channel cannot listen there",
                       own->port, own->port + 1u, own->host);
    err_set(e, HP_EDEVICE, "cannot open the data channel at %s on network %s: %s", own->host,
            network, ucs_status_string(s));
    return err_hint(e, "`ip link` lists the interfaces; name one with --network");
}

int ucx_stack_open(struct ucx_endpoint *d, const struct data_config *c, const char *network,
                   const struct ucx_handlers *handlers, struct data_address *own, struct err *e)
{
    struct ucx_guard_config guard = {.keys = c->keys,
                                     .port = c->port ? c->port + 1u : 0,
                                     .ctx = &d->base,
                                     .allowed = key_is_allowed,
                                     .refused = on_refused};
    int rc = ucx_guard_open(&guard, &d->guard, e);
    if (rc < 0)
        return rc;
    ucx_guard_enter(d->guard);
    ucs_status_t s = context_open(d, network);
    s = s == UCS_OK ? worker_open(d, handlers->on_message) : s;
    if (s == UCS_OK)
        memory_kinds_find(d, c->device);
    s = s == UCS_OK ? listener_open(d, handlers->on_request, own) : s;
    ucx_guard_enter(NULL);
    return s == UCS_OK ? ucx_guard_test(d->guard, own, e)
                       : stack_open_failed(d, e, s, network, own);
}
