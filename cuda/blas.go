package cuda

import "fmt"

// DataType is a cudaDataType.
type DataType int32

const (
	Float32  DataType = 0
	Float16  DataType = 2
	BFloat16 DataType = 14
)

// Product is y[M,N] = alpha * x[M,K] * w[N,K]^T + beta*y, accumulated in float32. LDX and LDY are the elements from one row of x and
// of y to the next; 0: K and N. Rows of w are contiguous.
type Product struct {
	M, N, K   int
	LDX, LDY  int
	In, Out   DataType // of x and w; of y
	Workspace int64    // bytes that the product may use on the device
}

// BLAS is cuBLASLt. Calls need a current context ([Device.Do]).
type BLAS interface {
	Library() string
	Version() int
	// Plan asks for an algorithm for the product's sizes and types; it is worth keeping.
	Plan(Product) (BLASPlan, error)
	Close() error
}

// BLASPlan is a product with its algorithm. It is for one goroutine at a time.
type BLASPlan interface {
	// Workspace is how many bytes the algorithm takes, at most the product's.
	Workspace() int64
	// Run puts the product on a stream; it does not allocate. Addresses are aligned to 256 bytes, which the
	// library takes for granted when it chooses.
	Run(y, x, w DevicePtr, alpha, beta float32, workspace DevicePtr, s Stream) error
	Close() error
}

// LibraryError is a failed call of a library beside the driver.
type LibraryError struct {
	Call string
	Code int
	Text string // the library's name for the code
	Log  string // what it logged, e.g. a compiler's messages
}

func (e *LibraryError) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
	if e.Log != "" {
		s += ":\n" + e.Log
	}
	return s
}
