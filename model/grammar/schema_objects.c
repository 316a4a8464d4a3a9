/* Owns objects: members in their order, those that may be missing, and others. */
#include <stdlib.h>
#include <string.h>

#include "model/grammar/schema_int.h"

struct object_member {
    const char *name;
    const struct expression *text; /* name and value */
    bool required;
};

struct object_reader {
    struct schema_reader *r;
    const json_t *schema, *others; /* others: what further members are; NULL: there are none */
    const char *path;
    schema_part_fn part;
    struct object_member *members;
    size_t n_members;
    int64_t least, most;
    const struct expression *other; /* a further member */
};

/* False: a member that must be there cannot be, or it failed. */
static bool member_add(struct object_reader *o, const char *name, const json_t *schema)
{
    char path[512];
    if (!schema_work(o->r, 1 + json_array_size(json_object_get(o->schema, "required")) / 8))
        return false;
    bool required = schema_requires(o->schema, name);
    json_t *key = json_string(name);
    snprintf(path, sizeof path, "%.300s.properties.%.100s", o->path, name);
    const struct expression *value = o->part(o->r, schema, path), *text;
    text = value ? json_text_member(o->r->text, json_text_literal(o->r->text, key), value) : NULL;
    json_decref(key);
    if (!text)
        return o->r->status == 0 && o->r->x->status == 0 && !required;
    o->members[o->n_members++] = (struct object_member){name, text, required};
    return true;
}

/* Members that are named, and those that are only required. */
static bool members_read(struct object_reader *o)
{
    const json_t *properties = json_object_get(o->schema, "properties"),
                 *required = json_object_get(o->schema, "required"),
                 *more = json_object_get(o->schema, "additionalProperties");
    json_t *value, *item, *any = json_true();
    const char *name;
    size_t i, most = json_object_size(properties) + json_array_size(required);
    if (most > SCHEMA_MAX_MEMBERS)
        return schema_fail(o->r, HP_ELIMIT, o->path, "an object has at most %d members",
                           SCHEMA_MAX_MEMBERS) != NULL;
    o->members = calloc(most + 1, sizeof *o->members);
    if (!o->members)
        return schema_fail(o->r, HP_ENOMEM, o->path, "no memory for its members") != NULL;
    json_object_foreach((json_t *)properties, name,
                        value) if (!member_add(o, name, value)) return false;
    json_array_foreach((json_t *)required, i, item)
    {
        bool known = !json_is_string(item) || json_object_get(properties, json_string_value(item));
        if (!schema_work(o->r, o->n_members / 8))
            return false;
        for (size_t k = 0; k < o->n_members && !known; k++)
            known = strcmp(o->members[k].name, json_string_value(item)) == 0;
        if (!known && !member_add(o, json_string_value(item), more ? more : any))
            return false;
    }
    return true;
}

static const struct expression *other_make(struct object_reader *o)
{
    const json_t *properties = json_object_get(o->schema, "properties");
    const char **names = calloc(json_object_size(properties) + o->n_members + 1, sizeof *names),
               *name;
    char path[512];
    size_t n = 0;
    json_t *value;
    if (!names)
        return schema_fail(o->r, HP_ENOMEM, o->path, "no memory for its members");
    json_object_foreach((json_t *)properties, name, value) names[n++] = name;
    for (size_t i = 0; i < o->n_members; i++)
        if (!json_object_get(properties, o->members[i].name))
            names[n++] = o->members[i].name;
    snprintf(path, sizeof path, "%.400s.additionalProperties", o->path);
    const struct expression *of = o->part(o->r, o->others, path), *e = NULL;
    if (of)
        e = json_text_member(o->r->text, json_text_other_name(o->r->text, names, n), of);
    free(names);
    return e;
}

/* Further members behind so many others. */
static const struct expression *others_behind(struct object_reader *o, size_t others)
{
    struct expressions *x = o->r->x;
    int64_t most = o->most < 0 ? EXPRESSION_FOREVER : o->most - (int64_t)others;
    most = most > EXPRESSION_MAX_REPEAT ? EXPRESSION_FOREVER : most;
    if (!o->other || most == 0)
        return expression_word(x, "");
    return expression_repeat(x, EXPRESSION_SEQUENCE_OF(x, json_text_comma(o->r->text), o->other), 0,
                             (int32_t)most);
}

/* What may follow member `at` - 1; a rule of its own where several places go there. */
static const struct expression *members_behind(struct object_reader *o, size_t at)
{
    struct expressions *x = o->r->x;
    struct expression_list l = {0};
    for (; at < o->n_members; at++) {
        const struct expression *e =
            EXPRESSION_SEQUENCE_OF(x, json_text_comma(o->r->text), o->members[at].text);
        expression_list_add(x, &l, o->members[at].required ? e : expression_repeat(x, e, 0, 1));
    }
    expression_list_add(x, &l, others_behind(o, o->n_members));
    return expression_sequence(x, l.items, l.count);
}

/* Any member up to the first that is required can be the first. What follows it goes on in rules,
 * each of which ends in the next, so that their size is that of the members. */
static const struct expression *members_text(struct object_reader *o)
{
    struct expressions *x = o->r->x;
    struct expression_list first = {0};
    size_t firsts = 0;
    while (firsts < o->n_members && !o->members[firsts].required)
        firsts++;
    bool none_required = firsts == o->n_members;
    firsts += !none_required;
    const struct expression *behind = members_behind(o, firsts);
    for (size_t i = firsts; i-- > 0 && behind;) {
        uint32_t rule = expression_rule_add(x, o->path);
        expression_rule_set(x, rule, behind);
        behind = expression_rule(x, rule);
        expression_list_add(x, &first, EXPRESSION_SEQUENCE_OF(x, o->members[i].text, behind));
        const struct expression *next =
            EXPRESSION_SEQUENCE_OF(x, json_text_comma(o->r->text), o->members[i].text, behind);
        behind = o->members[i].required ? next : EXPRESSION_CHOICE_OF(x, next, behind);
    }
    if (none_required && o->other && o->most != 0)
        expression_list_add(x, &first, EXPRESSION_SEQUENCE_OF(x, o->other, others_behind(o, 1)));
    const struct expression *some =
        first.count
            ? json_text_around(o->r->text, "{", expression_choice(x, first.items, first.count), "}")
            : NULL;
    const struct expression *none = EXPRESSION_SEQUENCE_OF(
        x, expression_word(x, "{"), json_text_part(o->r->text, JSON_TEXT_SPACE),
        expression_word(x, "}"));
    if (!none_required || (o->least > 0 && some))
        return some;
    return some ? EXPRESSION_CHOICE_OF(x, none, some) : none;
}

/* How many members there are at least and at most, without looking at the text. */
static bool counts_check(struct object_reader *o)
{
    size_t required = 0;
    for (size_t i = 0; i < o->n_members; i++)
        required += o->members[i].required;
    if (o->most >= 0 && (int64_t)required > o->most)
        return false;
    if (o->most >= 0 && (int64_t)o->n_members > o->most) { /* without those that need not be */
        size_t kept = 0;
        for (size_t i = 0, left = (size_t)o->most - required; i < o->n_members; i++)
            if (o->members[i].required || (left > 0 && left--))
                o->members[kept++] = o->members[i];
        o->n_members = kept;
    }
    if (o->least > (int64_t)required && !(o->least == 1 && required == 0)) {
        size_t lacking = (size_t)o->least - required;
        for (size_t i = 0; i < o->n_members && lacking > 0; i++)
            if (!o->members[i].required) {
                o->members[i].required = true;
                lacking--;
            }
        if (lacking && o->other)
            schema_fail(o->r, HP_EUNSUPPORTED, o->path,
                        "\"minProperties\" of more members than are named is not supported");
        return lacking == 0;
    }
    return o->least == 0 || o->n_members || o->other;
}

const struct expression *schema_object(struct schema_reader *r, const json_t *schema,
                                       const char *path, schema_part_fn part)
{
    const struct expression *e = NULL;
    struct object_reader o = {.r = r,
                              .schema = schema,
                              .path = path,
                              .part = part,
                              .least = schema_count(r, schema, "minProperties", 0, path),
                              .most = schema_count(r, schema, "maxProperties", -1, path)};
    json_t *any = json_true();
    o.others = json_object_get(schema, "additionalProperties");
    if (!o.others)
        o.others = json_object_get(schema, "unevaluatedProperties");
    if (!o.others && json_object_size(json_object_get(schema, "properties")) == 0)
        o.others = any;
    if (r->status == 0 && members_read(&o)) {
        o.other = o.others && !json_is_false(o.others) ? other_make(&o) : NULL;
        if (r->status == 0 && r->x->status == 0 && counts_check(&o))
            e = members_text(&o);
    }
    free(o.members);
    return e;
}
