#include "planners/pipeline/picture.h"

#include <stdio.h>

void pipeline_picture_add(struct timeline *t, const struct plan_pipeline *plan,
                          const struct pipeline_schedule *s, const char *group, bool hops)
{
    for (int j = 0; j < s->n_stages; j++) {
        const struct plan_stage *stage = &plan->stages[j];
        char name[200];
        snprintf(name, sizeof name, "%s%s", stage->device, stage->n_devices > 1 ? " …" : "");
        int lane = timeline_add_lane(t, group, name);
        timeline_note_lane(t, lane, "layers %d-%d", stage->first_layer, stage->end_layer - 1);
        for (int k = 0; k < s->n_slices; k++) {
            int cell = j * s->n_slices + k;
            if (plan->micro_batches > 0)
                timeline_add(t, lane, s->start_s[cell], s->end_s[cell], k,
                             "micro-batch %d, layers %d-%d", k, stage->first_layer,
                             stage->end_layer - 1);
            else
                timeline_add(t, lane, s->start_s[cell], s->end_s[cell], k,
                             "slice %d: %d tokens, layers %d-%d", k, plan->slices[k],
                             stage->first_layer, stage->end_layer - 1);
        }
        if (!hops || j + 1 == s->n_stages)
            continue;
        snprintf(name, sizeof name, "%.90s → %.90s", stage->device, plan->stages[j + 1].device);
        lane = timeline_add_lane(t, group, name);
        for (int k = 0; k < s->n_slices; k++)
            timeline_add(t, lane, s->hop_start_s[j * s->n_slices + k],
                         s->hop_end_s[j * s->n_slices + k], k, "hop of slice %d", k);
    }
}
