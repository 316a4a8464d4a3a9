/* What was measured of a model on one kind of device, read. Never changes once it is made. */
#ifndef HP_COORDINATOR_MEASURED_PROFILE_H
#define HP_COORDINATOR_MEASURED_PROFILE_H

#include <jansson.h>
#include <stdbool.h>

#include "common/profile.h"

/* What a stage of all layers takes of the device for a batch of so many tokens, beyond the values
 * that the model has. */
struct measured_scratch {
    double tokens, bytes;
};

struct measured_profile {
    struct profile classes; /* one kind of device, and a table for every class that was measured */
    struct profile layers;  /* the layers that were told, without tables; n_layers 0: none */
    double
        *resident_bytes; /* [layers.n_layers] of a layer's weights once loaded; 0: not measured */
    struct measured_scratch *scratch; /* [n_scratch], tokens rise */
    size_t n_scratch;                 /* 0: not said */
    bool paced;       /* of the profile that a paced agent runs by, which says a batch */
    const char *pace; /* SHA-256 of that profile; NULL: none */
};

/* Whether a key of the tables (docs/protocol.md, profile_result.tables) is a note beside the
 * classes. */
bool measured_profile_is_note(const char *key);
/* Reads tables that have passed profile_check. HP_EPARSE, HP_ENOMEM. */
int measured_profile_read(const json_t *tables, struct measured_profile *out, struct err *e);
void measured_profile_free(struct measured_profile *p);
/* Bytes at the next larger batch that was told; 0: none was. */
double measured_profile_scratch(const struct measured_profile *p, double tokens);
/* NULL: this class was not measured. */
const struct profile_table *measured_profile_table(const struct measured_profile *p,
                                                   const char *class_name);

#endif
