// A stand-in for libnvidia-ml.so.1 with one GPU that runs into its power limit and hides its temperature.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (std::strcmp(id, "0000:18:00.0") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  static int gpu;
  *device = &gpu;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* id, void** device) {
  if (std::strcmp(id, "GPU-00000000-1111-2222-3333-444444444444") != 0) return 6;  // NVML_ERROR_NOT_FOUND
  return nvmlDeviceGetHandleByPciBusId_v2("0000:18:00.0", device);
}
int nvmlDeviceGetUtilizationRates(void*, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = 87;
  gpu_and_memory[1] = 40;
  return 0;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1755 : type == 2 ? 2619 : 0;
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 699500;
  return 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned*) { return 4; }  // NVML_ERROR_NO_PERMISSION
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* mask) {
  *mask = 0x4 | 0x1;
  return 0;
}
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::strncpy(text, "580.65.06", length);
  return 0;
}
}
