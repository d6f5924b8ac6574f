// A library that stands before MXNet 1.9.1 when the dynamic linker looks for
// CopyFromTo, with which MXNet's executor copies tensors between contexts.
//
// oneDNN keeps tensors in layouts of its own, and an array remembers which. The
// executor plans that tensors share memory one after the other. Whoever writes a
// tensor into such memory makes the array forget the layout of the one before,
// save for the copy between contexts: that one believes the remembered layout,
// which may be of another shape and size, and crashes, or writes what nobody
// reads rightly. Here the array forgets it first.
//
// It must be loaded before libmxnet.so, with RTLD_GLOBAL. Only copies that are
// queued by a thread that asked for it (soybean_mx_clean_copies) are changed.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#define SOYBEAN_EXPORT __attribute__((visibility("default")))

namespace mxnet {
class NDArray;
SOYBEAN_EXPORT void CopyFromTo(const NDArray& from, const NDArray* to, int priority);
}  // namespace mxnet

namespace {

using mxnet::NDArray;

constexpr int kCpu = 1;                  // DeviceType of include/mxnet/c_api.h
constexpr int kPrioritizedProperty = 3;  // FnProperty::kCPUPrioritized of engine.h

struct EngineContext {
  int device_type, device_id;
};

// MXNet's own functions, from the library that calls us.
struct MxNet {
  explicit MxNet(const void* caller) {
    Dl_info info;
    if (dladdr(caller, &info) != 0) library_ = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    find("_ZN5mxnet10CopyFromToERKNS_7NDArrayEPS1_i", &copy);
    find("_ZN5mxnet7NDArray20InvalidateMKLDNNDataEv", &forget_layout);
    find("MXNDArrayGetContext", &context_of);
    find("MXShallowCopyNDArray", &share);
    find("MXNDArrayFree", &release);
    find("MXEnginePushSyncND", &push);
  }

  void (*copy)(const NDArray&, const NDArray*, int);
  void (*forget_layout)(void*);
  int (*context_of)(const NDArray*, int*, int*);
  int (*share)(const NDArray*, void**);
  int (*release)(void*);
  int (*push)(void (*)(void*, void*), void*, void (*)(void*), const EngineContext*, void**, int,
              void**, int, const int*, int, const char*);

 private:
  template <typename Function>
  void find(const char* name, Function* function) {
    *function = library_ == nullptr ? nullptr
                                    : reinterpret_cast<Function>(dlsym(library_, name));
    if (*function != nullptr) return;
    std::fprintf(stderr, "soybean_mx: the MXNet that is loaded has no %s, so it is not the "
                         "version 1.9.1 that soybean_mx is made for.\n", name);
    std::abort();  // nobody above us could copy the tensor either
  }

  void* library_ = nullptr;
};

const MxNet& mxnet_of(const void* caller) {
  static const MxNet library(caller);
  return library;
}

thread_local bool clean = false;
std::atomic<long> cleaned{0};

// Queues, before the copy that is to write the array, that it forgets its layout.
// Not on the array's own device, where it would wait behind unrelated work.
void queue_forgetting(const MxNet& library, const NDArray* array) {
  int type = 0, id = 0;
  if (library.context_of(array, &type, &id) != 0 || type != kCpu) return;
  void* shared = nullptr;
  if (library.share(array, &shared) != 0) return;
  const EngineContext context{type, id};
  void* written[] = {shared};
  const auto run = [](void*, void* handle) { mxnet_of(nullptr).forget_layout(handle); };
  const auto done = [](void* handle) { mxnet_of(nullptr).release(handle); };
  if (library.push(run, shared, done, &context, nullptr, 0, written, 1, &kPrioritizedProperty, 0,
                   "soybean_mx_forget_layout") == 0) {
    ++cleaned;
  }
}

}  // namespace

namespace mxnet {

void CopyFromTo(const NDArray& from, const NDArray* to, int priority) {
  const MxNet& library = mxnet_of(__builtin_return_address(0));
  if (clean) queue_forgetting(library, to);
  library.copy(from, to, priority);
}

}  // namespace mxnet

extern "C" {

// From now on, or no longer, the copies that this thread queues are cleaned.
SOYBEAN_EXPORT void soybean_mx_clean_copies(int on) { clean = on != 0; }

// How many were, by all threads.
SOYBEAN_EXPORT long soybean_mx_cleaned_copies() { return cleaned; }
}
