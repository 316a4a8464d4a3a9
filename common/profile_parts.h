/* Models whose mixtures' experts are in groups, each of which is a layer of its own: what a profile
 * of the whole model says of these parts. A part's weights and times are its share of the layer's;
 * between parts the sum so far, the row that experts read and the row's experts cross. */
#ifndef HP_COMMON_PROFILE_PARTS_H
#define HP_COMMON_PROFILE_PARTS_H

#include "common/profile.h"

/* A layer that stays whole is the one part of itself. */
struct profile_part {
    int layer;              /* number of the layer where the model is whole */
    const char *class_name; /* of that layer; NULL: not said */
    double share;           /* of that layer's weights */
    double crosses;         /* times what that layer hands on this part hands on */
};

/* What a part has of its layer. */
struct profile_layer profile_part_layer(const struct profile_layer *whole,
                                        const struct profile_part *part);
/* A name for the class of parts with that share of their layer, whose class is `whole`; NULL: there
 * is no memory. */
const char *profile_part_class(struct arena *arena, const char *whole, double share);
/* Experts of the mixture with the most; 0: there is none, or the profile does not say. */
int profile_experts(const struct profile *p);
/* Parts of the model with each mixture's experts in so many groups of neighbours (more than there
 * are experts: as many as these), the first with what the layer has beside them; *out in the arena.
 * Returns how many parts; HP_ENOMEM. */
int profile_parts_list(const struct profile *p, int groups, struct arena *arena,
                       struct profile_part **out);
/* The profile of the model in these parts, on its own; each table of a part's class is that of the
 * layer's by the part's share. HP_EINVAL: a part is of a layer that the profile has not, HP_ENOMEM.
 */
int profile_divide(const struct profile *p, const struct profile_part *parts, int n,
                   struct profile *out, struct err *e);

#endif
