from warm_integrations.core.garbage import *
