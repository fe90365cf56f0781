#include "harness.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace harness {
namespace {

struct Test {
    const char* name;
    Body body;
};

// A function, not a global: TEST registers before main, in no known order of files.
std::vector<Test>& tests() {
    static std::vector<Test> all;
    return all;
}

std::size_t n_checks = 0;
std::size_t n_failures = 0;
bool quiet = false;

bool selected(const char* name, int argc, char** argv) {
    for (int k = 1; k < argc; ++k)
        if (std::strstr(name, argv[k]) != nullptr) return true;
    return argc <= 1;
}

}  // namespace

bool add(const char* name, Body body) {
    tests().push_back({name, body});
    return true;
}

void report(bool ok, const char* file, int line, const std::string& what) {
    ++n_checks;
    if (ok) return;
    ++n_failures;
    if (!quiet) std::printf("%s:%d: failed: %s\n", file, line, what.c_str());
}

std::size_t count_failures(const std::function<void()>& body) {
    const std::size_t before = n_failures;
    quiet = true;
    try {
        body();
    } catch (...) {
        quiet = false;
        throw;
    }
    quiet = false;
    const std::size_t failed = n_failures - before;
    n_failures = before;
    return failed;
}

bool is_near(double got, double wanted, double tolerance) {
    return got == wanted || std::abs(got - wanted) <= tolerance;
}

}  // namespace harness

int main(int argc, char** argv) {
    using namespace harness;
    std::size_t n_run = 0;
    std::size_t n_failed = 0;
    for (const Test& test : tests()) {
        if (!selected(test.name, argc, argv)) continue;
        ++n_run;
        const std::size_t before = n_failures;
        try {
            test.body();
        } catch (const std::exception& error) {
            report(false, test.name, 0, std::string("an exception ended the test: ") + error.what());
        } catch (...) {
            report(false, test.name, 0, "an exception ended the test");
        }
        n_failed += n_failures > before;
        std::printf("%s %s\n", n_failures > before ? "FAILED" : "ok    ", test.name);
    }
    std::printf("%zu tests, %zu checks, %zu tests failed\n", n_run, n_checks, n_failed);
    return n_failed == 0 && n_run > 0 ? 0 : 1;
}
