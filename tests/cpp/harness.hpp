#pragma once

// A test harness without dependencies. Each test_*.cpp is one program:
//
//     TEST(sum_of_two) { CHECK_EQUAL(add(1, 2), 3); }
//
// The main function is in harness.cpp. A failed check is printed with its place and values and the test goes
// on; an exception ends its test. The program exits 1 when anything failed, or when there was no test at all.
// Arguments, if any, select tests whose name contains one of them. Not thread safe: check from the main
// thread.

#include <cstddef>
#include <functional>
#include <sstream>
#include <string>
#include <type_traits>

namespace harness {

using Body = void (*)();

// Called before main by TEST; returns true so that it can initialise a constant.
bool add(const char* name, Body body);

// Counts a check; prints and records it when it failed.
void report(bool ok, const char* file, int line, const std::string& what);

// Runs the body with its failures counted apart and unprinted; returns how many checks failed in it.
std::size_t count_failures(const std::function<void()>& body);

// |got - wanted| <= tolerance. A NaN is near nothing, an infinity only to itself.
bool is_near(double got, double wanted, double tolerance);

template <class T>
std::string text(const T& value) {
    std::ostringstream out;
    out.precision(17);
    if constexpr (std::is_enum_v<T>) {
        out << static_cast<long long>(value);
    } else {
        out << value;
    }
    return out.str();
}

}  // namespace harness

#define TEST(name)                                                                           \
    static void test_##name();                                                               \
    [[maybe_unused]] static const bool registered_##name = harness::add(#name, test_##name); \
    static void test_##name()

#define CHECK(condition) harness::report(static_cast<bool>(condition), __FILE__, __LINE__, #condition)

#define CHECK_EQUAL(got, wanted)                                                                   \
    do {                                                                                           \
        const auto& got_ = (got);                                                                  \
        const auto& wanted_ = (wanted);                                                            \
        harness::report(got_ == wanted_, __FILE__, __LINE__,                                       \
                        #got " is " + harness::text(got_) + ", wanted " + harness::text(wanted_)); \
    } while (false)

#define CHECK_NEAR(got, wanted, tolerance)                                                                  \
    do {                                                                                                    \
        const double got_ = (got);                                                                          \
        const double wanted_ = (wanted);                                                                    \
        const double tolerance_ = (tolerance);                                                              \
        harness::report(harness::is_near(got_, wanted_, tolerance_), __FILE__, __LINE__,                    \
                        #got " is " + harness::text(got_) + ", wanted " + harness::text(wanted_) + " +- " + \
                            harness::text(tolerance_));                                                     \
    } while (false)

// The statement throws the exception, with the given words in its message.
#define CHECK_THROWS(statement, exception, words)                                                   \
    do {                                                                                            \
        std::string said_ = "nothing was thrown";                                                   \
        bool ok_ = false;                                                                           \
        try {                                                                                       \
            statement;                                                                              \
        } catch (const exception& error_) {                                                         \
            said_ = error_.what();                                                                  \
            ok_ = said_.find(words) != std::string::npos;                                           \
        } catch (...) {                                                                             \
            said_ = "another exception was thrown";                                                 \
        }                                                                                           \
        harness::report(                                                                            \
            ok_, __FILE__, __LINE__,                                                                \
            #statement ": " + said_ + "; wanted " #exception " with '" + std::string(words) + "'"); \
    } while (false)
