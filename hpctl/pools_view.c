#include "hpctl/pools_view.h"

#include <stdio.h>
#include <string.h>

#include "hpctl/shown.h"
#include "hpctl/table.h"

static void cell_attainment(struct buffer *cell, const json_t *value)
{
    buffer_printf(cell, "%.1f %%", 100 * json_number_value(value));
}

static void cell_per_second(struct buffer *cell, const json_t *value)
{
    buffer_printf(cell, "%.1f", json_number_value(value));
}

static void cell_on(struct buffer *cell, const json_t *row)
{
    const char *part = json_string_value(json_object_get(row, "part"));
    buffer_printf(cell, "%s%s%s", string_member(row, "on"), part ? " " : "", part ? part : "");
}

static void cell_layers(struct buffer *cell, const json_t *value)
{
    buffer_printf(cell, "%lld-%lld", json_integer_value(json_array_get(value, 0)),
                  json_integer_value(json_array_get(value, 1)) - 1);
}

/* What batches took beside what was planned. */
static void cell_off(struct buffer *cell, const json_t *row)
{
    double planned = number_member(row, "planned_s"), actual = number_member(row, "actual_s");
    if (planned > 0)
        buffer_printf(cell, "%+.1f %%", 100 * (actual / planned - 1));
    else
        buffer_printf(cell, "-");
}

static int shares_print(const json_t *plan, struct err *e)
{
    static const struct table_column columns[] = {
        {"MODEL", "model", NULL},      {">PIPELINE", "pipeline", NULL},   {">STAGE", "stage", NULL},
        {"ON", NULL, cell_on},         {"BLOCKS", "layers", cell_layers}, {"STATE", "state", NULL},
        {">BATCHES", "batches", NULL}, {">OFF THE PLAN", NULL, cell_off}, {0}};
    printf("\nplan %lld, since %s\n", json_integer_value(json_object_get(plan, "number")),
           string_member(plan, "why"));
    return table_print_list(columns, json_object_get(plan, "shares"), "no shares", e);
}

int pools_print(const json_t *pools, struct err *e)
{
    static const struct table_column columns[] = {{"MODEL", "name", NULL},
                                                  {">DEADLINE", "slo_s", cell_seconds},
                                                  {">PLANNED/S", "planned_per_s", cell_per_second},
                                                  {">ASKED/S", "asked_per_s", cell_per_second},
                                                  {">ARRIVED", "arrived", NULL},
                                                  {">ON TIME", "on_time", NULL},
                                                  {">LATE", "late", NULL},
                                                  {">DROPPED", "dropped", NULL},
                                                  {">FAILED", "failed", NULL},
                                                  {">ATTAINMENT", "attainment", cell_attainment},
                                                  {">MEAN", "total_s", cell_seconds},
                                                  {">BATCH", "batch", NULL},
                                                  {0}};
    const json_t *failure = json_object_get(pools, "failure");
    printf("pools: %s\n", string_member(pools, "state"));
    const char *hint = string_member(failure, "hint");
    if (failure)
        printf("the last plan failed, and is tried again: %s%s%s\n",
               string_member(failure, "message"), *hint ? "\n  " : "", hint);
    int rc = table_print_list(columns, json_object_get(pools, "models"),
                              "nothing is applied: hpctl apply -f FILE", e);
    if (rc == 0 && json_object_get(pools, "current"))
        rc = shares_print(json_object_get(pools, "current"), e);
    if (rc == 0 && json_object_get(pools, "next"))
        rc = shares_print(json_object_get(pools, "next"), e);
    return rc;
}

/* ---- one model of them ---- */

/* A plan with the shares of a model alone. */
static json_t *plan_of_model(const json_t *plan, const char *model)
{
    json_t *own = json_copy((json_t *)(uintptr_t)plan), *shares = json_array(), *share;
    size_t i;
    json_array_foreach(json_object_get(plan, "shares"), i, share)
    {
        if (strcmp(string_member(share, "model"), model) == 0)
            json_array_append(shares, share);
    }
    json_object_set_new(own, "shares", shares);
    return own;
}

json_t *pools_of_model(const json_t *pools, const char *model)
{
    static const char *const plans[] = {"current", "next"};
    json_t *row, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(pools, "models"), i, row)
    {
        if (strcmp(string_member(row, "name"), model) == 0)
            found = row;
    }
    if (!found)
        return NULL;
    json_t *own = json_copy((json_t *)(uintptr_t)pools);
    json_object_set_new(own, "models", json_pack("[O]", found));
    for (i = 0; i < sizeof plans / sizeof *plans; i++)
        if (json_object_get(own, plans[i]))
            json_object_set_new(own, plans[i],
                                plan_of_model(json_object_get(own, plans[i]), model));
    return own;
}
