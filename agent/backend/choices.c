#include "agent/backend/choices.h"

json_t *device_choices_json(const struct device *d)
{
    struct device_choice rows[DEVICE_CHOICES_MAX];
    int n = d->backend->choices ? d->backend->choices(d, rows, DEVICE_CHOICES_MAX) : 0;
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "what", rows[i].what, "how",
                                              rows[i].how, "why", rows[i].why));
    return list;
}
