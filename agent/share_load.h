/* What a share holds, from the order to prepare it and the model in the store. */
#ifndef HP_AGENT_SHARE_LOAD_H
#define HP_AGENT_SHARE_LOAD_H

#include <stdatomic.h>

#include "agent/engine/network/network_part.h"
#include "transport/message.h"

/* Of a device's threads those that a part of so many computes with: as even as can be, one at
 * least. */
int share_part_threads(int device_threads, int part, int parts);
/* Opens the network and plans its blocks for every batch. `stop`, `threads` and `device` (NULL: the
 * CPU) outlive the part; what it holds counts to the account. As network_open and network_part_open
 * fail. */
int share_part_open(const struct message_stage_prepare *p, const struct message_share *share,
                    const char *path, uint64_t limit_bytes, const atomic_bool *stop,
                    struct threads *threads, struct network_device *device,
                    const struct network_account *account, struct network_part **out,
                    struct err *e);
/* Every batch once, so that its first run is as fast as its next. */
int share_part_warm(struct network_part *part, const atomic_bool *stop, struct err *e);
/* Bytes of what comes in of its largest batch. */
uint64_t share_part_input_bytes(const struct network_part *part);

#endif
