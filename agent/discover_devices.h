/* Several devices of one agent: parts of its share, each with cores and memory of its own. */
#ifndef HP_AGENT_DISCOVER_DEVICES_H
#define HP_AGENT_DISCOVER_DEVICES_H

#include "agent/discover.h"

/* Divides a share among devices, each as `hp-agent --device` says it:
 *
 *     cpu[:CORES][,mem=BYTES][,threads=N]
 *     cuda:N[/share=1/V][,mem=BYTES][,host=BYTES[,small=BYTES]]
 *
 * CORES is a list "0,2-3" or "any:K" (any K that no list names), all of the share's; without them a
 * device has what no other one names, and there is at most one such. No core is of two devices; one
 * that is of none leaves the share. `mem` is for the device's stages, out of discover_stage_bytes;
 * what the others leave of that is shared out among those that do not say, in proportion to their
 * cores. `threads`: as discover_threads.
 *
 * A GPU has no cores and memory of its own: `mem`, or nine tenths of what is free on it, and of
 * that its share (gpu_spec.h), of which one GPU has as many as come to the whole. Where all
 * devices are GPUs the share keeps its cores. `host`: of the box's memory, beside the agent's, for
 * tables of embeddings that the GPU reads where they lie. HP_EUSAGE names the device that is wrong,
 * HP_EDEVICE: cores cannot be read, or there is no such GPU, no driver or no plugin
 * (agent/backend/plugin.h).
 */
int discover_devices(const char *const *texts, int n, struct discover_share *share, struct err *e);

#endif
