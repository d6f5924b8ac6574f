// Stamps and guards as MXNet's engine uses them: held by queued operations that run, or are
// thrown away, on threads of their own, after their makers have let go. Under AddressSanitizer
// a stamp that is freed too early, twice or never fails.
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "c_api.h"
#include "tests/check.h"

namespace {

bool is_refused(void* guard) {
  try {
    SoybeanRequireStamps(nullptr, guard);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

void a_stamp_says_when() {
  void* first = SoybeanNewStamp();
  void* second = SoybeanNewStamp();
  CHECK(SoybeanStampedAt(first) == 0);
  SoybeanStamp(nullptr, first);
  SoybeanStamp(nullptr, second);
  CHECK(SoybeanStampedAt(first) > 0);
  CHECK(SoybeanStampedAt(second) >= SoybeanStampedAt(first));
  SoybeanReleaseStamp(first);
  SoybeanReleaseStamp(second);
}

void a_guard_requires_all_of_its_stamps() {
  void* stamps[] = {SoybeanNewStamp(), SoybeanNewStamp(), SoybeanNewStamp()};
  void* of_none = SoybeanNewGuard(stamps, 0);
  void* of_all = SoybeanNewGuard(stamps, 3);
  for (void* stamp : stamps) {
    CHECK(is_refused(of_all));
    SoybeanStamp(nullptr, stamp);
  }
  CHECK(!is_refused(of_all));
  CHECK(!is_refused(of_none));
  for (void* stamp : stamps) SoybeanReleaseStamp(stamp);
  CHECK(!is_refused(of_all));  // it holds them
  SoybeanReleaseGuard(of_none);
  SoybeanReleaseGuard(of_all);
}

// An operation for each stamp, of which every third is thrown away, and a guard that is asked
// by another thread; their maker lets go at once.
void queued_operations_outlive_their_maker() {
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> engine;
    std::vector<void*> stamps;
    for (int i = 0; i < 6; ++i) stamps.push_back(SoybeanNewStamp());
    for (size_t i = 0; i < stamps.size(); ++i) {
      void* held = SoybeanHoldStamp(stamps[i]);
      engine.emplace_back([held, i] {
        if (i % 3 != 0) SoybeanStamp(nullptr, held);
        SoybeanReleaseStamp(held);
      });
    }
    void* guard = SoybeanNewGuard(stamps.data(), static_cast<int64_t>(stamps.size()));
    for (void* stamp : stamps) SoybeanReleaseStamp(stamp);
    engine.emplace_back([guard] {
      CHECK(is_refused(guard));
      SoybeanReleaseGuard(guard);
    });
    for (std::thread& thread : engine) thread.join();
  }
}

}  // namespace

int main() {
  a_stamp_says_when();
  a_guard_requires_all_of_its_stamps();
  queued_operations_outlive_their_maker();
  return soybean_tests::finish("stamp_test");
}
