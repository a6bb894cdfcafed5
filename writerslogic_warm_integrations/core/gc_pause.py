from warm_integrations.core.gc_pause import *
