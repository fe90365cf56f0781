// Every check is seen to fail, so that a green run of the other tests means something.

#include <limits>
#include <stdexcept>
#include <string>

#include "harness.hpp"

namespace {

enum class Colour { red, green };

void throw_words(const char* words) { throw std::invalid_argument(words); }

}  // namespace

TEST(a_true_check_passes) {
    CHECK_EQUAL(harness::count_failures([] { CHECK(1 + 1 == 2); }), 0u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_EQUAL(Colour::red, Colour::red); }), 0u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_NEAR(1.0, 1.5, 0.5); }), 0u);
    CHECK_EQUAL(
        harness::count_failures([] { CHECK_THROWS(throw_words("n is 0"), std::invalid_argument, "n"); }), 0u);
}

TEST(a_false_check_fails) {
    CHECK_EQUAL(harness::count_failures([] { CHECK(1 + 1 == 3); }), 1u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_EQUAL(Colour::red, Colour::green); }), 1u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_EQUAL(std::string("a"), std::string("b")); }), 1u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_NEAR(1.0, 1.5, 0.25); }), 1u);
}

TEST(nan_is_near_nothing_and_infinity_only_itself) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr double inf = std::numeric_limits<double>::infinity();
    CHECK(!harness::is_near(nan, nan, inf));
    CHECK(!harness::is_near(nan, 0.0, inf));
    CHECK(!harness::is_near(0.0, 0.0 + nan, 1.0));
    CHECK(harness::is_near(inf, inf, 0.0));
    CHECK(!harness::is_near(inf, -inf, 1.0));
}

TEST(check_throws_wants_the_exception_and_its_words) {
    CHECK_EQUAL(harness::count_failures([] { CHECK_THROWS(throw_words("n"), std::invalid_argument, "m"); }),
                1u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_THROWS(throw_words("n"), std::out_of_range, "n"); }), 1u);
    CHECK_EQUAL(harness::count_failures([] { CHECK_THROWS((void)0, std::invalid_argument, "n"); }), 1u);
}

TEST(failures_are_counted_one_by_one) {
    CHECK_EQUAL(harness::count_failures([] {
                    CHECK(false);
                    CHECK(true);
                    CHECK(false);
                }),
                2u);
}
