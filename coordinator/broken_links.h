/* Data paths between two agents that both live, over which frames do not come through: the next
 * stage falls silent, or the link breaks again and again. What is planned goes round such a path
 * for a while, and each time longer, so that one that comes and goes holds itself off. A path is
 * broken both ways: of two stages each sends to the other. */
#ifndef HP_COORDINATOR_BROKEN_LINKS_H
#define HP_COORDINATOR_BROKEN_LINKS_H

#include "coordinator/deployment.h"

enum {
    BROKEN_LINK_MS = 30000,         /* so long nothing is planned over it; doubles six times */
    BROKEN_LINK_FORGET_MS = 600000, /* so long after that the next time counts as the first */
    BROKEN_LINK_HEARD_MS = 1200,    /* who was heard so lately lives */
    BROKEN_LINK_TRIES = 3, /* a link that broke so often, each within BROKEN_LINK_TRY_MS of the one
                              before, is not tried again */
    BROKEN_LINK_TRY_MS = 15000,
};

/* Frames to the stage with this number do not come. Nothing where one of its two agents has not
 * been heard lately: then that one is what is lost. */
void broken_links_hop(struct coord *c, const struct deployment *d, int stage);
/* An agent says that its link to the next stage broke: true where that was once too often, and the
 * path counts as broken. */
bool broken_links_told(struct coord *c, struct deployment *d, const struct member *m);
/* Whether two stages of it that follow each other lie at the ends of a broken path. */
bool broken_links_in(struct coord *c, const struct stage_layout *layout);
/* Whether a plan for the deployment goes round broken paths. It does and does not by turns, as it
 * fails: an old place whose link may be mended is better than none. */
bool broken_links_avoided(const struct deployment *d);
/* Whether the plan gives nothing to this agent: of the two ends of each broken path one stays out,
 * who has more such paths or less memory, and by turns the other. */
bool broken_links_leave_out(const struct coord *c, const struct deployment *d,
                            const struct member *m);

#endif
