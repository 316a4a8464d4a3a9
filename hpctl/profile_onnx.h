/* `hpctl profile model MODEL.onnx --local`: what a network costs on cores of this machine; and
 * the options of measuring networks, wherever they are measured. */
#ifndef HP_HPCTL_PROFILE_ONNX_H
#define HP_HPCTL_PROFILE_ONNX_H

#include "agent/engine/network/network_part.h"
#include "agent/engine/network/network_profile.h"
#include "hpctl/command.h"

enum { ONNX_WISHES_DIMS = 16, ONNX_WISHES_SHARES = 8 };

struct onnx_wishes {
    struct network_profile_ask ask; /* batches (none: the network's own), dims, budget */
    struct network_dim dims[ONNX_WISHES_DIMS];
    char symbols[ONNX_WISHES_DIMS][128];
    int64_t shares[ONNX_WISHES_SHARES]; /* [n_shares], rising from 1; none: as cores go */
    int n_shares;
    uint64_t blocks;
    int64_t lengths[NETWORK_PART_SIZES]; /* rising; n_lengths 0: it has one size */
    int n_lengths, n_said;               /* dims[n_said ..) are the length */
};

/* The options batches, dim, shares, blocks, lengths and budget, which is that of one length.
 * HP_EUSAGE. *out must not move afterwards. */
int onnx_wishes_read(const struct invocation *in, struct onnx_wishes *out, struct err *e);
/* Whatever inputs leave free beside the batch and what `dim` says is the length. HP_EUSAGE. */
int onnx_wishes_find(const struct onnx *o, struct onnx_wishes *w, struct err *e);
/* Of a network that has lengths. */
void onnx_wishes_length(struct onnx_wishes *w, int64_t length);
/* A size for what the model does not leave free is a slip of the pen: HP_EUSAGE. */
int onnx_wishes_check(const struct onnx *o, const struct onnx_wishes *w, struct err *e);

/* Measures, groups into blocks, prints or writes hp-profile/1. The verb has the options above,
 * kind, lengths and threads. */
int profile_onnx(struct invocation *in, struct err *e);

#endif
