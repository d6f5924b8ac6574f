// A library that stands before MXNet 1.9.1 when the dynamic linker looks for
// CopyFromTo, with which MXNet's executor copies tensors between contexts.
//
// oneDNN keeps tensors in layouts of its own, and an array remembers which. The
// executor plans that tensors share memory one after the other. Whoever writes a
// tensor into such memory makes the array forget the layout of the one before,
// save for the copy between contexts: that one believes the remembered layout,
// which may be of another shape and size, and crashes, or writes what nobody
// reads rightly. Here the array forgets it first, in the same operation of the engine.
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
constexpr int kDense = 0;                // NDArrayStorageType of ndarray.h

struct EngineContext {
  int device_type, device_id;
};

// RunContext of include/mxnet/base.h, by value in memory as there.
struct EngineRunContext {
  EngineContext context;
  void* stream;
  void* aux_stream;
  bool is_bulk;
};

// MXNet's own functions, from the library that calls us.
struct MxNet {
  explicit MxNet(const void* caller) {
    Dl_info info;
    if (dladdr(caller, &info) != 0) library_ = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    find("_ZN5mxnet10CopyFromToERKNS_7NDArrayEPS1_i", &copy);
    find("_ZN5mxnet7NDArray20InvalidateMKLDNNDataEv", &forget_layout);
    find("_ZN5mxnet17CopyFromToDnsImplIN7mshadow3cpuES2_EEvRKNS_7NDArrayES5_NS_10RunContextE", &copy_now);
    find("MXNDArrayGetContext", &context_of);
    find("MXNDArrayGetStorageType", &storage_type_of);
    find("MXNDArrayGetDType", &element_type_of);
    find("MXShallowCopyNDArray", &share);
    find("MXNDArrayFree", &release);
    find("MXEnginePushSyncND", &push);
  }

  void (*copy)(const NDArray&, const NDArray*, int);
  void (*forget_layout)(void*);
  void (*copy_now)(const NDArray&, const NDArray&, EngineRunContext);
  int (*context_of)(const NDArray*, int*, int*);
  int (*storage_type_of)(const NDArray*, int*);
  int (*element_type_of)(const NDArray*, int*);
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

struct Copy {
  void *from, *to;
};

// Whether the arrays are dense, of one element type, and on CPU contexts; the sender's.
bool is_plain(const MxNet& library, const NDArray* from, const NDArray* to, EngineContext* sender) {
  EngineContext receiver{0, 0};
  int storage[2] = {-1, -1}, type[2] = {-1, -1};
  return library.context_of(from, &sender->device_type, &sender->device_id) == 0 &&
         library.context_of(to, &receiver.device_type, &receiver.device_id) == 0 &&
         library.storage_type_of(from, &storage[0]) == 0 && library.storage_type_of(to, &storage[1]) == 0 &&
         library.element_type_of(from, &type[0]) == 0 && library.element_type_of(to, &type[1]) == 0 &&
         sender->device_type == kCpu && receiver.device_type == kCpu && storage[0] == kDense &&
         storage[1] == kDense && type[0] == type[1];
}

void release(const MxNet& library, Copy* copy) {
  if (copy->from != nullptr) library.release(copy->from);
  if (copy->to != nullptr) library.release(copy->to);
  delete copy;
}

// Queues the copy, and that the array which it writes forgets its layout before. As
// MXNet does, on the device that sends.
bool queue_clean_copy(const MxNet& library, const NDArray* from, const NDArray* to, int priority) {
  EngineContext sender{0, 0};
  if (!is_plain(library, from, to, &sender)) return false;
  Copy* copy = new Copy{nullptr, nullptr};
  if (library.share(from, &copy->from) != 0 || library.share(to, &copy->to) != 0) {
    release(library, copy);
    return false;
  }
  void *read[] = {copy->from}, *written[] = {copy->to};
  const auto run = [](void* context, void* parameter) {
    const MxNet& mxnet = mxnet_of(nullptr);
    const Copy* arrays = static_cast<const Copy*>(parameter);
    mxnet.forget_layout(arrays->to);
    mxnet.copy_now(*static_cast<const NDArray*>(arrays->from), *static_cast<const NDArray*>(arrays->to),
                   *static_cast<const EngineRunContext*>(context));
  };
  const auto done = [](void* parameter) { release(mxnet_of(nullptr), static_cast<Copy*>(parameter)); };
  if (library.push(run, copy, done, &sender, read, 1, written, 1, nullptr, priority, "CopyCPU2CPU") != 0) {
    release(library, copy);
    return false;
  }
  ++cleaned;
  return true;
}

}  // namespace

namespace mxnet {

void CopyFromTo(const NDArray& from, const NDArray* to, int priority) {
  const MxNet& library = mxnet_of(__builtin_return_address(0));
  if (clean && queue_clean_copy(library, &from, to, priority)) return;
  library.copy(from, to, priority);
}

}  // namespace mxnet

extern "C" {

// From now on, or no longer, the copies that this thread queues are cleaned.
SOYBEAN_EXPORT void soybean_mx_clean_copies(int on) { clean = on != 0; }

// How many were, by all threads.
SOYBEAN_EXPORT long soybean_mx_cleaned_copies() { return cleaned; }
}
