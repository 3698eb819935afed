//go:build !nocuda

package gpu

import _ "embed"

// compiled is the kernels for sm_80, 89, 90, 100 and 120, and as PTX for what comes, as scripts/kernels.sh made them of src/.
//
//go:embed kernels.fatbin
var compiled string

// fatbin is the compiled kernels as cuModuleLoadData takes them.
func fatbin() []byte { return []byte(compiled) }
