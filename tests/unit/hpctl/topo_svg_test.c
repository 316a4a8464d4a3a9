/* Pictures of clusters: whole, and without markup of anybody's names. */
#include <string.h>

#include "hpctl/reach.h"
#include "hpctl/topo_svg.h"
#include "tests/test.h"

TEST(names_of_boxes_are_no_markup)
{
    struct buffer out = {0};
    json_t *c = json_loads(
        "{\"nodes\": [{\"name\": \"<script>alert(1)</script>\", \"devices\": [{\"name\": \"cpu\", "
        "\"kind\": \"A & \\\"B\\\"\", \"memory_bytes\": 8e9, \"usable\": false, \"why\": "
        "\"<no>\"}], "
        "\"nics\": [{\"name\": \"eth0\", \"bandwidth_bytes_per_s\": 1e9}]}, {\"name\": \"b\", "
        "\"devices\": [{\"name\": \"cpu\", \"kind\": \"k\", \"memory_bytes\": 1e9}]}]}",
        0, NULL);
    assert_int_equal(topo_svg_write(c, &out), 0);
    const char *svg = buffer_cstr(&out);
    assert_null(strstr(svg, "<script"));
    assert_null(strstr(svg, "<no>"));
    assert_non_null(strstr(svg, "&lt;script&gt;"));
    assert_non_null(strstr(svg, "A &amp; &quot;B&quot;"));
    assert_non_null(strstr(svg, "1.0 GB/s"));
    assert_memory_equal(svg, "<svg", 4);
    assert_string_equal(svg + out.size - 7, "</svg>\n");
    json_decref(c);
    buffer_free(&out);
}

TEST(an_empty_cluster_is_a_picture_too)
{
    struct buffer out = {0};
    json_t *c = json_pack("{s:[]}", "nodes");
    assert_int_equal(topo_svg_write(c, &out), 0);
    assert_non_null(strstr(buffer_cstr(&out), "</svg>"));
    json_decref(c);
    buffer_free(&out);
}

/* ---- reach ---- */

TEST(every_address_is_known_as_such)
{
    static const struct {
        const char *listen;
        bool any;
    } cases[] = {{"0.0.0.0:7070", true}, {"[::]:7070", true},    {"*:7070", true},
                 {":7070", true},        {"10.0.0.1:70", false}, {"box:7070", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(reach_is_any(cases[i].listen), cases[i].any);
}

TEST(what_listens_everywhere_is_reached_here_by_loopback)
{
    char out[100];
    reach_from_here("0.0.0.0:7070", out, sizeof out);
    assert_string_equal(out, "127.0.0.1:7070");
    reach_from_here("box:7070", out, sizeof out);
    assert_string_equal(out, "box:7070");
    reach_address("10.1.2.3:7070", out, sizeof out);
    assert_string_equal(out, "10.1.2.3:7070");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_boxes_are_no_markup),
        cmocka_unit_test(an_empty_cluster_is_a_picture_too),
        cmocka_unit_test(every_address_is_known_as_such),
        cmocka_unit_test(what_listens_everywhere_is_reached_here_by_loopback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
