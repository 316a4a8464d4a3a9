/* Imagined devices and NICs under virtual time: they take a random factor of the planned time,
 * begin no work before its reserved start, its input's arrival and the end of the work before it,
 * and report to the scheduler what they used. */
#ifndef HP_PLANNERS_DISPATCH_IMAGINE_H
#define HP_PLANNERS_DISPATCH_IMAGINE_H

#include "planners/dispatch/dispatch.h"
#include "planners/dispatch/simulate.h"

struct imagine;

/* Counts finished requests in `result`. HP_ENOMEM. */
int imagine_create(const struct dispatch_topology *t, struct dispatch *d,
                   const struct simulate_options *o, struct simulate_result *result,
                   struct imagine **out, struct err *e);
void imagine_destroy(struct imagine **im);
/* Takes a batch that the scheduler sends. HP_ENOMEM. */
int imagine_send(struct imagine *im, const struct dispatch_action *a);
/* When something happens next; INT64_MAX: nothing. */
int64_t imagine_next(const struct imagine *im);
/* Lets it happen. */
void imagine_step(struct imagine *im);
/* The last finish so far. */
int64_t imagine_last(const struct imagine *im);

#endif
