/* The in-process twin of the control channel: a hub of named servers; messages are copied and
 * delivered on each receiver's loop. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "transport/control_int.h"

struct inproc_message {
    struct inproc_message *next;
    uint64_t peer;
    char key[KEY_TEXT];
    size_t size;
    uint8_t bytes[];
};

struct inproc_control {
    struct control base;
    struct control_hub *hub;
    struct inproc_control *next, *server; /* `server` NULL: it is one */
    char name[64], key[KEY_TEXT];
    uint64_t number; /* a client's, as its server sees it */
    uv_async_t wake;
    struct inproc_message *head, **tail; /* under hub->lock */
    bool closing;
};

struct control_hub {
    pthread_mutex_t lock;
    struct inproc_control *endpoints;
    uint64_t next_number;
};

struct control_hub *control_hub_create(void)
{
    struct control_hub *h = calloc(1, sizeof *h);
    if (h)
        pthread_mutex_init(&h->lock, NULL);
    return h;
}

void control_hub_destroy(struct control_hub **h)
{
    if (*h)
        pthread_mutex_destroy(&(*h)->lock);
    free(*h);
    *h = NULL;
}

static void on_wake(uv_async_t *handle)
{
    struct inproc_control *c = handle->data;
    pthread_mutex_lock(&c->hub->lock);
    struct inproc_message *m = c->head;
    c->head = NULL;
    c->tail = &c->head;
    pthread_mutex_unlock(&c->hub->lock);
    while (m) {
        struct inproc_message *next = m->next;
        if (!c->closing)
            c->base.callbacks.message(c->base.callbacks.ctx, m->peer, m->key, m->bytes, m->size);
        free(m);
        m = next;
    }
}

static int inproc_send(struct control *base, uint64_t peer, const uint8_t *bytes, size_t size,
                       struct err *e)
{
    struct inproc_control *c = (struct inproc_control *)base, *to = NULL;
    struct inproc_message *m = malloc(sizeof *m + size);
    if (!m)
        return err_set(e, HP_ENOMEM, "out of memory for a message");
    *m = (struct inproc_message){.peer = c->server ? c->number : 0, .size = size};
    memcpy(m->key, c->server ? c->key : "", c->server ? KEY_TEXT : 1);
    if (size)
        memcpy(m->bytes, bytes, size);
    pthread_mutex_lock(&c->hub->lock);
    for (struct inproc_control *other = c->hub->endpoints; other && !to; other = other->next)
        if (c->server ? other == c->server : (other->server == c && other->number == peer))
            to = other;
    if (to) {
        *to->tail = m;
        to->tail = &m->next;
        uv_async_send(&to->wake);
    }
    pthread_mutex_unlock(&c->hub->lock);
    if (to)
        return 0;
    free(m);
    return err_set(e, HP_ELINK, "peer %llu is not connected", (unsigned long long)peer);
}

static int inproc_port(const struct control *c)
{
    (void)c;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    struct inproc_control *c = handle->data;
    while (c->head) {
        struct inproc_message *next = c->head->next;
        free(c->head);
        c->head = next;
    }
    free(c);
}

static void inproc_close(struct control *base)
{
    struct inproc_control *c = (struct inproc_control *)base;
    pthread_mutex_lock(&c->hub->lock);
    for (struct inproc_control **p = &c->hub->endpoints; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            break;
        }
    pthread_mutex_unlock(&c->hub->lock);
    c->closing = true;
    uv_close((uv_handle_t *)&c->wake, on_closed);
}

static void inproc_read(struct control *base)
{
    on_wake(&((struct inproc_control *)base)->wake);
}

static enum control_contact inproc_contact(const struct control *base)
{
    (void)base;
    return CONTROL_PROVEN;
}

static const struct control_ops inproc_ops = {inproc_send, inproc_port, inproc_read, inproc_contact,
                                              inproc_close};

static int open_endpoint(struct control_hub *hub, uv_loop_t *loop, const char *name,
                         const struct key_pair *own, const struct control_callbacks *cb,
                         const char *server_key, struct control **out, struct err *e)
{
    struct inproc_control *c = calloc(1, sizeof *c), *server = NULL;
    if (!c)
        return err_set(e, HP_ENOMEM, "out of memory for a control endpoint");
    c->base = (struct control){&inproc_ops, *cb};
    c->hub = hub;
    c->tail = &c->head;
    strncpy(c->name, name, sizeof c->name - 1);
    memcpy(c->key, own->public_key, KEY_TEXT);
    pthread_mutex_lock(&hub->lock);
    for (struct inproc_control *other = hub->endpoints; other; other = other->next)
        if (!other->server && strcmp(other->name, c->name) == 0)
            server = other;
    bool refused = server_key ? !server || strcmp(server->key, server_key) != 0 : server != NULL;
    if (!refused) {
        c->server = server_key ? server : NULL;
        c->number = ++hub->next_number;
        c->wake.data = c;
        uv_async_init(loop, &c->wake, on_wake);
        c->next = hub->endpoints;
        hub->endpoints = c;
    }
    pthread_mutex_unlock(&hub->lock);
    if (refused) {
        free(c);
        return server_key
                   ? err_set(e, HP_ELINK, "no server \"%s\" with that key is in this process", name)
                   : err_set(e, HP_EIO, "a server \"%s\" is in this process already", name);
    }
    *out = &c->base;
    return 0;
}

int control_serve_inproc(struct control_hub *hub, uv_loop_t *loop, const char *name,
                         const struct key_pair *own, const struct control_callbacks *cb,
                         struct control **out, struct err *e)
{
    return open_endpoint(hub, loop, name, own, cb, NULL, out, e);
}

int control_connect_inproc(struct control_hub *hub, uv_loop_t *loop, const char *name,
                           const char *server_key, const struct key_pair *own,
                           const struct control_callbacks *cb, struct control **out, struct err *e)
{
    return open_endpoint(hub, loop, name, own, cb, server_key, out, e);
}
