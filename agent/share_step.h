/* One batch at one share: read out of its frame, run, written into the frame that goes on. Used by
 * one thread. */
#ifndef HP_AGENT_SHARE_STEP_H
#define HP_AGENT_SHARE_STEP_H

#include "agent/engine/network/network_part.h"
#include "transport/frame_tensors.h"

struct share_step;

/* NULL: no memory. */
struct share_step *share_step_new(void);
void share_step_free(struct share_step **s);

/* Reads legs and tensors, which point into the payload. HP_EPROTO. */
int share_step_read(struct share_step *s, const struct frame_header *h, const uint8_t *payload,
                    struct err *e);
/* Whether the leg that the header names is of this share, and when it may begin. HP_EPROTO. */
int share_step_is_for(const struct share_step *s, const struct frame_header *h, uint32_t share,
                      uint64_t *start_ns, struct err *e);
struct frame_leg *share_step_leg(struct share_step *s, uint32_t leg);

/* Runs what was read, of the batch that the header tells of. As network_part_run. */
int share_step_run(struct share_step *s, struct network_part *part, const struct frame_header *h,
                   struct err *e);

/* The header of the frame that goes on with what the part gave, to which row of the plan's list and
 * not before when; returns the bytes of its payload, 0: more than a frame may have. */
uint64_t share_step_out(struct share_step *s, const struct network_part *part,
                        const struct frame_header *in, struct frame_header *out, uint32_t *peer,
                        uint64_t *send_ns);
/* Writes that payload. */
void share_step_write(struct share_step *s, const struct network_part *part,
                      const struct frame_header *in, uint8_t *out);

#endif
