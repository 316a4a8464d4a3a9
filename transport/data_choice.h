/* Which kind of data endpoint a box opens, and by which of its addresses others reach it.
 *
 * "ucx" and "tcp" are what the user said. "auto" is UCX where no stranger listens in: on loopback
 * and on the networks that were named as trusted; and encrypted TCP everywhere else.
 * docs/security.md says what each protects against. */
#ifndef HP_TRANSPORT_DATA_CHOICE_H
#define HP_TRANSPORT_DATA_CHOICE_H

#include <stdbool.h>

#include "common/status.h"
#include "transport/data_address.h"

struct data_config;
struct data_endpoint;

enum { DATA_MODE_TEXT = 8, DATA_TRUST_TEXT = 512 };

/* What a cluster wants of its data channel. */
struct data_policy {
    char mode[DATA_MODE_TEXT];   /* "auto" (also ""), "ucx", "tcp" */
    char trust[DATA_TRUST_TEXT]; /* networks, "10.1.0.0/16,fd00::/8"; "": none */
};

/* Checks and takes both texts; NULL and "" are "auto" and no network. HP_EUSAGE says which part is
 * wrong. */
int data_policy_set(struct data_policy *p, const char *mode, const char *trust, struct err *e);
bool data_policy_equal(const struct data_policy *a, const struct data_policy *b);

/* For an endpoint whose address is `host` (numeric). */
enum data_kind data_policy_kind(const struct data_policy *p, const char *host);
const char *data_kind_word(enum data_kind kind);

/* Opens an endpoint of that kind. */
int data_open_kind(enum data_kind kind, const struct data_config *c, struct data_endpoint **out,
                   struct err *e);

/* The address of this box on an interface or, without one, on the way to `towards` ("HOST:PORT", or
 * a numeric host). HP_ENOENT, HP_ELINK. */
int data_host_find(const char *interface, const char *towards, char out[DATA_HOST_TEXT],
                   struct err *e);
/* The interface that has a numeric address: false when none has. */
bool data_interface_find(const char *host, char *out, size_t size);

#endif
