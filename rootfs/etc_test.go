package rootfs

import "testing"

func TestAnImagesAccountsComeBehindTheSkills(t *testing.T) {
	for _, c := range []struct {
		name, theirs, want string
		id                 int
	}{
		{"none", "", etcFiles("h", 1000, 1000)["passwd"], 1000},
		{
			"the same number and the same name", "root:x:0:0:r:/root:/bin/bash\napp:x:1000:1:::\nskill:x:5:5:::\nweb:x:33:33:::\n",
			"skill:x:1000:1000:skill:/home/skill:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nroot:x:0:0:r:/root:/bin/bash\nweb:x:33:33:::\n", 1000,
		},
		{
			"a single id", "root:x:0:0:r:/root:/bin/bash\ntoor:x:0:0:::\nweb:x:33:33:::",
			"root:x:0:0:skill:/home/skill:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nweb:x:33:33:::\n", 0,
		},
		{"nonsense", "\n\n:::\nx\nroot\n\x00:x:1000:\r\n", etcFiles("h", 1000, 1000)["passwd"], 1000},
	} {
		if got := mergeAccounts(etcFiles("h", c.id, c.id)["passwd"], c.theirs, c.id); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}
