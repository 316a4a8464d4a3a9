#include <jansson.h>
#include <string.h>

#include "planners/timeline.h"
#include "tests/test.h"

static void draw(struct timeline *t)
{
    *t = (struct timeline){.title = "a <plan>"};
    int bus = timeline_add_lane(t, "buses", "bus 0"), gpu = timeline_add_lane(t, "devices", "gpu0");
    timeline_add(t, bus, 0, 0.5, 0, "w \"%d\"", 1);
    timeline_add(t, gpu, 0.5, 1.0, 3, "layer & head");
    timeline_add(t, gpu, 0.25, 0.25, TIMELINE_STALL, NULL);
}

TEST(text_shows_when_each_lane_is_busy)
{
    struct timeline t;
    struct buffer out = {0};
    draw(&t);
    assert_int_equal(timeline_write_text(&t, 36, false, &out), 0);
    const char *text = buffer_cstr(&out);
    assert_non_null(strstr(text, "bus 0 |"));
    assert_non_null(strstr(text, "|  50 %\n"));
    assert_non_null(strstr(text, "gpu0  |"));
    assert_non_null(strstr(text, "1 s\n"));
    assert_null(strstr(text, "\033"));
    out.size = 0;
    assert_int_equal(timeline_write_text(&t, 36, true, &out), 0);
    assert_non_null(strstr(buffer_cstr(&out), "\033[38;5;"));
    buffer_free(&out);
    timeline_free(&t);
}

TEST(svg_escapes_labels_and_has_every_interval)
{
    struct timeline t;
    struct buffer out = {0};
    draw(&t);
    assert_int_equal(timeline_write_svg(&t, &out), 0);
    const char *svg = buffer_cstr(&out);
    assert_non_null(strstr(svg, "a &lt;plan&gt;"));
    assert_non_null(strstr(svg, "w &quot;1&quot; (0 s to 500 ms)"));
    assert_non_null(strstr(svg, "layer &amp; head"));
    assert_non_null(strstr(svg, "</svg>"));
    buffer_free(&out);
    timeline_free(&t);
}

TEST(lanes_stand_under_their_groups_with_what_is_noted_of_them)
{
    struct timeline t;
    struct buffer out = {0};
    draw(&t);
    t.legend = "one colour a layer";
    timeline_note_lane(&t, 1, "layers %d-%d", 3, 4);
    assert_int_equal(timeline_write_svg(&t, &out), 0);
    const char *svg = buffer_cstr(&out), *buses = strstr(svg, ">buses</text>"),
               *devices = strstr(svg, ">devices</text>"), *gpu = strstr(svg, ">gpu0</text>");
    assert_true(buses && devices && gpu && buses < devices && devices < gpu);
    assert_non_null(strstr(svg, ">layers 3-4</text>"));
    assert_non_null(strstr(svg, ">one colour a layer</text>"));
    buffer_free(&out);
    timeline_free(&t);
}

TEST(trace_is_json_with_microseconds)
{
    struct timeline t;
    struct buffer out = {0};
    draw(&t);
    assert_int_equal(timeline_write_trace(&t, &out), 0);
    json_t *root = json_loadb((const char *)out.data, out.size, 0, NULL);
    assert_non_null(root);
    const json_t *events = json_object_get(root, "traceEvents"), *first = json_array_get(events, 4);
    assert_int_equal(json_array_size(events), 7); /* two names a lane, three intervals */
    assert_string_equal(json_string_value(json_object_get(first, "name")), "w \"1\"");
    assert_true(json_number_value(json_object_get(first, "dur")) == 500000);
    json_decref(root);
    buffer_free(&out);
    timeline_free(&t);
}

TEST(empty_timeline_is_drawn_as_nothing)
{
    struct timeline t = {0};
    struct buffer out = {0};
    assert_int_equal(timeline_write_text(&t, 80, false, &out), 0);
    assert_int_equal(out.size, 0);
    assert_int_equal(timeline_write_svg(&t, &out), 0);
    assert_int_equal(timeline_write_trace(&t, &out), 0);
    buffer_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_shows_when_each_lane_is_busy),
        cmocka_unit_test(svg_escapes_labels_and_has_every_interval),
        cmocka_unit_test(lanes_stand_under_their_groups_with_what_is_noted_of_them),
        cmocka_unit_test(trace_is_json_with_microseconds),
        cmocka_unit_test(empty_timeline_is_drawn_as_nothing),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
