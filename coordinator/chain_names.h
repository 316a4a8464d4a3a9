/* Names of pages of tokens, for what agents keep beyond a generation (spills.h): a digest of all
 * tokens up to the page's end and of what their keys and values follow from: model, arithmetic,
 * wire, rotation; and of whose they are, so that nobody finds what another's key had computed
 * (prefixes.h). Two chains with one name are one chain: nothing else is compared. */
#ifndef HP_COORDINATOR_CHAIN_NAMES_H
#define HP_COORDINATOR_CHAIN_NAMES_H

#include "common/digest.h"
#include "common/kv_range.h"
#include "coordinator/deployment.h"
#include "coordinator/sequence.h"

/* Where the names of a sequence's pages begin. One that shares with nobody has names of its own. */
struct digest chain_names_root(const struct coord *c, const struct deployment *d,
                               const struct sequence *s);
/* The name of the next page, KV_PAGE_TOKENS ids, behind one of this name. */
struct digest chain_names_next(const struct digest *before, const uint32_t *ids);

#endif
